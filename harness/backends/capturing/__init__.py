"""The captures of graphs: those that torch.compile makes, and the ops that are executed eagerly."""
