"""torch.compile: the mode, what Inductor supports and does, its graphs, and compiled graphs taken apart on a tape."""
