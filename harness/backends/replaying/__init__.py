"""The execution of a snapshot in a mode: op by op, as HLO, or as a graph that the mode's backend compiles."""
