"""A neighbour that scripts import."""

FEATURES, CLASSES = 8, 4
