"""What runs in a training process that is held at a step: the tape of the step, and its replays."""
