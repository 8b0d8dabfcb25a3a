"""Every kernel of the catalogue, measured on a device: a script that prints as JSON what was not measured, and why.

python kernels_measured.py DEVICE DTYPE...
"""

from __future__ import annotations

import json
import sys

import torch

from numdrift.harness.api.kernel_measuring import checked
from numdrift.harness.errors import KernelError
from numdrift.kernels.generic import fp64
from numdrift.kernels.registry import built_in


def not_measured(device: str, dtype: str) -> dict[str, str]:
    """Measure each kernel on a few random inputs; return why a kernel was not measured, by `op=kernel`."""
    found: dict[str, str] = {}
    for operation in built_in().operations():
        rows, _ = checked(
            operation.name,
            kernels=(),
            dtype=dtype,
            inputs="random",
            recorded=None,
            samples=16,
            seed=0,
            device=device,
            timeout=60,
            progress=lambda done, total, what: None,
        )
        found |= {f"{operation.name}={row.kernel}": f"{row.status}: {row.why}" for row in rows if row.why}
    return found


def leaves_the_generator(device: str) -> bool:
    """Whether a kernel that is refused, as it draws numbers, leaves the device's generator where it was."""
    before = torch.get_device_module(device).get_rng_state()
    try:
        fp64("native_dropout", torch.ones(4, 4, device=device), 0.5, True)
    except KernelError:
        return torch.equal(before, torch.get_device_module(device).get_rng_state())
    return False


def main(device: str, *dtypes: str) -> None:
    found = {dtype: not_measured(device, dtype) for dtype in dtypes}
    print(json.dumps({"not measured": found, "generator": leaves_the_generator(device)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
