"""Pictures of graphs, made without a browser."""
