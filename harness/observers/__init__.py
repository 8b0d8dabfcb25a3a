"""The observers of a training run: each watches the steps chosen for it, and writes its own files."""
