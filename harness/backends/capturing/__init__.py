"""The captures of graphs: the graphs that torch.compile makes, and the ops that are executed eagerly."""
