"""torch.compile: the mode, Inductor's support and work, its graphs, and the decomposition of graphs on a tape."""
