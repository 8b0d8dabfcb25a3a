"""Make the max pooling of torch_xla (2.9) visible. torch_xla computes it above autograd, where no op is observed.

While a step is recorded, torch's own `max_pool2d_with_indices` and its derivative are called in its place. torch_xla
computes these in the same way, so no bit changes.
"""

from __future__ import annotations

from typing import Any

from ...torch_private.deferred.xla_tensors import XLA_AUTOGRAD_KEY
from ...torch_private.operators import aten_overload
from ...torch_private.registered_kernels import Overrides

POOLS = ("aten::max_pool2d", "aten::max_pool3d")


class SeenPools:
    """The replacements of the pooling ops, from construction until `close`."""

    def __init__(self) -> None:
        self._overrides = Overrides()
        for name in POOLS:
            own, seen = aten_overload(name), aten_overload(f"{name}_with_indices")
            if own is not None and seen is not None:
                self._overrides.replace(own, XLA_AUTOGRAD_KEY, _largest(seen))

    def close(self) -> None:
        self._overrides.close()


def _largest(pool: Any) -> Any:
    """Return a function that calls the op and returns the maxima without their indices."""
    return lambda *args, **kwargs: pool(*args, **kwargs)[0]
