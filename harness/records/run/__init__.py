"""Records of a run: its request, its configuration, its files, its steps and what it ran in."""
