"""A stand-in for an accelerator, as a vendor would ship it: importing it makes `torch.standin` and the device "standin".

These variables are read once, when the device is first used:

    STANDIN_COUNT         the number of devices, default 2
    STANDIN_EAGER         1: kernels run where they are launched, not at the next synchronization
    STANDIN_LEDGER        a file in which all processes count what they keep of the memory, and the most it ever was
    STANDIN_LOST_AT       after so many launches the device is lost
    STANDIN_MEMORY        bytes of each device, default all that it can address
    STANDIN_UNREPEATABLE  1: sums over indices add in another order each time
"""

import torch
from torch.utils.backend_registration import generate_methods_for_privateuse1_backend, rename_privateuse1_backend

from . import _device as _device  # the compiled part, which registers the device with torch
from . import collectives, device_module

rename_privateuse1_backend("standin")
torch._register_device_module("standin", device_module)
generate_methods_for_privateuse1_backend(for_storage=True)
collectives.register()


def load() -> None:
    """Do nothing: torch calls this once it has imported the package by itself."""
