"""Hidden values are not rounded to bfloat16, as the script has it."""

from tests.faults.training import Training, replace

MODELS = ("casts",)
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "narrow"}


def plant(training: Training) -> None:
    replace(training.model.get_submodule("narrow"), lambda x: x)
