"""What numdrift asks of torch_xla beyond its public names."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence

import torch

from .presence import private

# torch_xla executes what is pending. Written after torch_xla 2.9 and not run on it.


def start_xla() -> None:
    """Raises NotAvailable where torch_xla is not installed."""
    private("torch_xla.core.xla_model", "xla_device")()


def sync_xla(tensors: Sequence[torch.Tensor]) -> None:
    """Execute what is pending, in one graph; with it everything else that lives on the device and is
    pending."""
    if any(one.device.type == "xla" for one in tensors):
        private("torch_xla.core.xla_model", "mark_step")()


# torch_xla asked what it makes of an op: counters of its fallbacks, and the HLO of pending tensors.
#
# Written after torch_xla 2.9 and not run on it: each name is looked for before it is used.

XLA_KEY = "XLA"


def xla_versions() -> Mapping[str, str]:
    """The versions of torch_xla and of its compiler's package, where they are installed."""
    found = {}
    for name in ("torch_xla", "libtpu"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def xla_counter(name: str) -> int:
    """What torch_xla has counted under a name; `aten::nonzero` are executions of that op on the CPU."""
    value: int | None = private("torch_xla.debug.metrics", "counter_value")(name)
    return value or 0


def xla_hlo(tensors: Sequence[torch.Tensor]) -> str:
    """The HLO of the graph that is pending for these tensors, which is lowered for that and not executed.

    Raises RuntimeError where an op cannot be lowered.
    """
    return str(private("torch_xla._XLAC", "_get_xla_tensors_hlo")(list(tensors)))
