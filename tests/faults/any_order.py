"""A product whose sums add in another order each time, as kernels do that add atomically.

`scripts/bench faults --unrepeatable` sets the variable UNREPEATABLE, and each training of the benchmark, the reference
as well, has this kernel in place of torch's `mm`, which computes the gradients of linear layers. So no training repeats
its own bits, and the faults have to be found beneath that.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

VARIABLE = "UNREPEATABLE"

ORDERS = torch.Generator()


def product(x: Tensor, y: Tensor) -> Tensor:
    """Return x @ y, whose sums have a random order and are split at a random place."""
    order = torch.randperm(x.shape[1], generator=ORDERS)
    split = int(torch.randint(1, max(2, x.shape[1]), (1,), generator=ORDERS))
    x, y = x.index_select(1, order), y.index_select(0, order)
    first, second = (torch.einsum("ik,kj->ij", x[:, part], y[part]) for part in (slice(split), slice(split, None)))
    return first + second


def add_in_any_order(library: torch.library.Library) -> None:
    """Put the product in place of torch's if the variable asks for it."""
    if os.environ.get(VARIABLE):
        ORDERS.seed()  # from the operating system
        library.impl("mm", product, "CPU")
