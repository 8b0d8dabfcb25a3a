"""The observers of a training: each watches the steps that it is for, and writes its own files."""
