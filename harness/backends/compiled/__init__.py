"""torch.compile: the mode, Inductor's support and work, its graphs, and compiled graphs taken apart on a tape."""
