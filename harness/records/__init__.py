"""All that crosses the border of a process or is written: plain records, their files and their codec.
Standard library only."""
