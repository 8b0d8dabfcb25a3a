"""Scripts that run in several processes: collectives on the mode's device, and modules inside torch's wrappers.

Collectives that a script requests for an accelerator run on the mode's device. On the CPU, they use gloo.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ..errors import NotAvailable
from ..records.modes.mode_registry import DEFERRED_DEVICES
from ..records.run.adoption_facts import AdoptionFacts
from ..torch_private.patches import Patches, Undo

DEVICE_BACKENDS = ("nccl", "rccl", "hccl", "xccl", "cncl", "eccl")
"""The backends whose collectives need tensors on an accelerator."""

HIDDEN = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""The names of the attributes of torch's wrappers that refer to the wrapped module. Scripts do not use these names."""

SETTLED = 0.05
"""The time in seconds within which any thread that is waiting for the interpreter's lock acquires it."""

_kept: list[Any] = []
"""The process groups, kept until the script has ended.

The code that drops the last reference to gloo's group holds the interpreter's lock while it waits for the group's
thread. That thread needs the lock too, if it still has the context in which a work item began. torch 2.13 keeps this
context, which is that of `backward()`, with each work item. So a script that has destroyed its group would hang when it
returns from the function with its DistributedDataParallel.
"""


def install(device: str, facts: AdoptionFacts) -> Undo:
    """Move collectives and meshes from the accelerator that the script requests to the mode's device.

    Return the function that undoes this. Nothing is changed in a mode that runs on CUDA or has lazy tensors.
    """
    kind = device.partition(":")[0]
    patches = Patches(f"collectives of {kind}")
    if kind in ("cuda", *DEFERRED_DEVICES) or not torch.distributed.is_available():
        return patches.undo

    def on_the_device(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def make(device_type: str, *args: Any, **kwargs: Any) -> Any:
            if device_type not in ("cpu", kind):
                facts.note("device", f"a device mesh of {device_type} becomes a mesh of {kind} in this mode")
                device_type = kind
            return original(device_type, *args, **kwargs)

        return make

    wrap = DistributedDataParallel.__init__

    @functools.wraps(wrap)
    def create(
        wrapper: DistributedDataParallel,
        module: torch.nn.Module,
        device_ids: Any = None,
        output_device: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if device_ids or output_device is not None:
            facts.note("device", "DistributedDataParallel gets no device_ids in this mode")
        wrap(wrapper, module, None, None, *args, **kwargs)

    distributed: Any = torch.distributed
    replaced: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
        "init_process_group": functools.partial(_with_backend, place=0, kind=kind, facts=facts),
        "new_group": functools.partial(_with_backend, place=2, kind=kind, facts=facts),
        "init_device_mesh": on_the_device,
    }
    # torch exports the same function from several modules, and a script may import it from any of them.
    modules = [
        sys.modules.get(f"torch.distributed.{submodule}") for submodule in ("device_mesh", "tensor", "distributed_c10d")
    ]
    for name, make_wrapper in replaced.items():
        original = getattr(distributed, name)
        wrapper = make_wrapper(original)
        for holder in (distributed, *modules):
            if holder is not None and getattr(holder, name, None) is original:
                patches.replace(holder, name, wrapper)
    patches.replace(DistributedDataParallel, "__init__", create)
    return patches.undo


def backend_on(kind: str, requested: str) -> str:
    """Return the backend that replaces `requested` on a kind of device.

    On the CPU, gloo replaces `nccl` and `cpu:gloo,cuda:nccl`. On any other device, the device's own backend replaces
    them for tensors on the device. `mpi` is kept. Raises NotAvailable if the device has no collectives.
    """
    parts = [part.strip().rpartition(":")[::2] for part in requested.lower().split(",")]
    everywhere = next((name for device, name in parts if not device), None)
    if everywhere is not None and everywhere not in (*DEVICE_BACKENDS, "gloo"):
        return everywhere
    on_host = next((name for device, name in parts if device == "cpu"), "gloo")
    if kind == "cpu":
        return on_host
    try:
        default: str = torch.distributed.get_default_backend_for_device(kind)
    except (ValueError, AttributeError) as error:
        raise NotAvailable(
            f"torch.distributed on the device {kind!r}", "it has no backend for this device", "leave --nproc out"
        ) from error
    host_too = everywhere == "gloo" or any(device == "cpu" for device, _ in parts)
    return f"cpu:{on_host},{kind}:{default}" if host_too else default


def _with_backend(original: Callable[..., Any], place: int, kind: str, facts: AdoptionFacts) -> Callable[..., Any]:
    """Wrap a function that creates a process group. `place` is the index of the function's argument `backend`."""

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        requested = args[place] if len(args) > place else kwargs.get("backend")
        kwargs.pop("device_id", None)
        if isinstance(requested, str) and (chosen := backend_on(kind, requested)) != requested.lower():
            facts.note("device", f"{requested} becomes {chosen} in this mode")
            if len(args) > place:
                args = (*args[:place], chosen, *args[place + 1 :])
            else:
                kwargs["backend"] = chosen
            kwargs.pop("pg_options", None)  # the options are for the requested backend
        group = original(*args, **kwargs)
        _kept.append(torch.distributed.group.WORLD if group is None else group)
        return group

    return make


def is_replicated(module: torch.nn.Module) -> bool:
    """Return whether the module is a wrapper that keeps parameters equal on all ranks. The wrapper may be compiled."""
    return isinstance(getattr(module, "_orig_mod", module), DistributedDataParallel)


def within_wrapper(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module that a compiler should compile: the model inside a DistributedDataParallel, or `module` itself.

    The wrapper's hooks and its reducer stay outside of the graphs, as torch advises.
    """
    return module.module if isinstance(module, DistributedDataParallel) else module


def wrapper_paths(module: torch.nn.Module) -> frozenset[str]:
    """Return the paths, in a root module, of the wrappers whose attribute `module` is the wrapped module."""
    return frozenset(path for path, part in module.named_modules() if isinstance(part, DistributedDataParallel))


def plain_name(name: str, wrappers: frozenset[str]) -> str:
    """Return the name of a tensor or module without any wrapper: `fc.weight` for `module.fc.weight`."""
    parts = name.split(".")
    return ".".join(
        part
        for place, part in enumerate(parts)
        if part not in HIDDEN and not (part == "module" and ".".join(parts[:place]) in wrappers)
    )


def leave() -> None:
    """Leave the process group after a script that succeeded, unless the script itself has left it.

    A script that numdrift ends after some steps does not leave the group. If the group still exists when the process
    ends, the group's threads sometimes abort the process.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        with suppress(Exception):
            torch.distributed.destroy_process_group()


def let_go() -> None:
    """Release the process groups of a script that has ended, once their threads have nothing left to do."""
    if _kept:
        time.sleep(SETTLED)
        _kept.clear()
