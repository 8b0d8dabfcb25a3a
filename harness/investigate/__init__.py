"""The main job: run the modes, gather evidence, judge it, write the findings."""
