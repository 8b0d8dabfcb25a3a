"""What captures graphs in the script's process, one file a mode. Guests: torch and the standard library only."""
