"""Two runs' graphs held against each other."""
