"""Hidden values are not rounded to quarters, as the script has it, in a training whose casts the compiler keeps."""

from tests.faults.training import Training, replace

MODELS = ("casts",)
MODES = ("cpu", "compile,emulate_casts=on")
REVERSED = ("cpu",)
EXPECTED = "beyond-rounding"
HIDDEN = True
CULPRIT = {"phase": "forward", "module": "quarters"}


def plant(training: Training) -> None:
    replace(training.model.get_submodule("quarters"), lambda x: x)
