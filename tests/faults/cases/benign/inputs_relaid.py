"""An elementwise op takes its inputs transposed, and they are laid back after it: no bit can change."""

from typing import Any

from tests.faults.training import Training, replace
from torch import Tensor

MODELS = ("own_kernels",)
EXPECTED = "identical"


def plant(training: Training) -> None:
    first = training.model.get_submodule("first")
    forward: Any = first.forward
    replace(first, lambda x: forward(there_and_back(x)))


def there_and_back(x: Tensor) -> Tensor:
    transposed = x.transpose(1, 2).contiguous().transpose(1, 2)
    return transposed.neg().contiguous().neg()
