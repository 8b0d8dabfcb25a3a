"""What is told of a training, and when: the protocols between a training process and those who watch it."""
