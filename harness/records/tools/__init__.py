"""Records of the tools: graphs, profiles, operator support, partitions and snapshots."""
