"""The investigation: run the modes, gather evidence, judge it, write the findings."""
