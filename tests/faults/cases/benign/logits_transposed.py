"""What a log_softmax takes lies transposed, and its kernel, which both sides have, adds up from the other end then."""

from tests.faults.training import Training, replace

MODELS = ("own_kernels",)
EXPECTED = "rounding"


def plant(training: Training) -> None:
    replace(training.model.get_submodule("logits"), lambda logits: logits.t().contiguous().t())
