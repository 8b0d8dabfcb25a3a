"""Records of modes: their names, what each can do, and the grammar of a mode with its settings."""
