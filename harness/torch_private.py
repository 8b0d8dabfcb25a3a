"""Every private torch name that numdrift touches, each behind a guard.

A hook that this torch version lacks raises NotAvailable with the version in its reason; nothing else in
numdrift reads a name with a leading underscore from torch. Verified on torch 2.13.0.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .errors import KernelNotFound, NotAvailable, nearest

DispatchMode = TorchDispatchMode
"""What sees every aten op of this process; torch has no public name for it."""


without_function_modes: Any = getattr(torch._C, "DisableTorchFunction", torch.no_grad)
"""A context in which tensor subclasses and torch function modes see nothing; without the hook it changes nothing."""

without_dispatch_modes: Any = getattr(torch._C, "_DisableTorchDispatch", torch.no_grad)
"""A context in which dispatch modes see nothing; without the hook it changes nothing."""

no_dispatch: Any = getattr(torch._C, "_disabled_torch_dispatch_impl", None)
"""The `__torch_dispatch__` of a class that has none of its own; None where torch does not have it."""


def _private(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise NotAvailable(f"{module}.{name}", f"torch {torch.__version__} does not have it") from error


def start_lazy_backend() -> None:
    """Start the TorchScript backend of the lazy core, once: a second start (the script's own) does nothing."""
    backend = importlib.import_module("torch._lazy.ts_backend")
    start = _private("torch._lazy.ts_backend", "init")
    try:
        start()
    except RuntimeError as error:
        raise NotAvailable("mode 'lazy'", str(error).splitlines()[0]) from error
    backend.init = lambda: None  # type: ignore[attr-defined]


def lazy_mark_step() -> Callable[[], None]:
    """The function that cuts and executes the pending lazy graph."""
    mark: Callable[[], None] = _private("torch._lazy", "mark_step")
    return mark


def replace_lazy_mark_step(replacement: Callable[..., None]) -> None:
    """Route the script's own `torch._lazy.mark_step()` to `replacement`."""
    importlib.import_module("torch._lazy").mark_step = replacement  # type: ignore[attr-defined]


def sync_lazy(tensors: Sequence[torch.Tensor]) -> None:
    """Execute what the given lazy tensors need, in one graph."""
    wanted = [tensor.detach() for tensor in tensors if tensor.device.type == "lazy"]
    if wanted:
        _private("torch._C._lazy", "_sync_multi")(wanted, [], True, True)


def is_compiled_in_place(module: torch.nn.Module) -> bool:
    """Whether `module.compile()` was called already."""
    return getattr(module, "_compiled_call_impl", None) is not None


def compile_in_place(module: torch.nn.Module, backend: str) -> None:
    """Make calls of `module` go through torch.compile, the module staying the same object.

    `module.compile()` does that, except for classes whose forward is torch's own, nn.Sequential above all:
    dynamo does not trace torch's files as an outermost frame and runs them eagerly without a word
    (torch 2.13). Those are entered through a frame of ours.
    """
    if type(module).forward.__module__.partition(".")[0] == "torch":
        _require(module, "_compiled_call_impl")
        module._compiled_call_impl = torch.compile(_outer_frame(module), backend=backend)
    else:
        module.compile(backend=backend)


def _outer_frame(module: torch.nn.Module) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return module._call_impl(*args, **kwargs)

    return call


def compiled_frames() -> int:
    """How many Python frames dynamo has compiled in this process."""
    return int(_private("torch._dynamo.utils", "counters")["frames"]["ok"])


def set_inductor_numerics(*, contract: bool | None, emulate_casts: bool | None) -> None:
    """Set Inductor's contraction of a*b+c and its emulation of eager's casts; None leaves its default."""
    if contract is not None:
        cpp = _private("torch._inductor.config", "cpp")
        _require(cpp, "enable_floating_point_contract_flag")
        cpp.enable_floating_point_contract_flag = "fast" if contract else "off"
    if emulate_casts is not None:
        config = importlib.import_module("torch._inductor.config")
        _require(config, "emulate_precision_casts")
        config.emulate_precision_casts = emulate_casts  # type: ignore[attr-defined]


def _require(holder: Any, name: str) -> None:
    if not hasattr(holder, name):
        raise NotAvailable(name, f"torch {torch.__version__} does not have it")


def find_overload(op: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
    """The overload of an aten op that takes these arguments; `op` may name the overload (`sum.dim_IntList`).

    Raises KernelNotFound, naming the nearest, when aten has no such op.
    """
    name, _, overload = op.partition(".")
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        raise KernelNotFound(f"torch {torch.__version__} has no op aten.{name}; {near_op(name)}")
    if overload:
        found = getattr(packet, overload, None)
        if found is None:
            raise KernelNotFound(
                f"aten.{name} has no overload {overload!r}; {nearest(overload, packet.overloads())}"
            )
        return found
    if len(packet.overloads()) == 1:
        return getattr(packet, packet.overloads()[0])
    resolve = _private("torch._C", "_jit_resolve_packet")
    return getattr(packet, resolve(f"aten::{name}", *args, **(kwargs or {})))


def near_op(name: str) -> str:
    """The aten ops whose names come closest, as the end of an error message."""
    names = {full.partition("::")[2].partition(".")[0] for full in aten_operations()}
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else "see the op names in torch.ops.aten"


def aten_operations() -> list[str]:
    """The full names of all aten ops, `aten::name.overload`."""
    names = _private("torch._C", "_dispatch_get_all_op_names")()
    return sorted(name for name in names if name.startswith("aten::"))


def decomposition_of(overload: Any) -> Callable[..., Any] | None:
    """The decomposition that torch ships for an overload, None where it ships none."""
    table = _private("torch._decomp", "decomposition_table")
    if overload in table:
        found: Callable[..., Any] = table[overload]
        return found
    if _private("torch._C", "_dispatch_has_kernel_for_dispatch_key")(
        overload.name(), "CompositeImplicitAutograd"
    ):
        return overload.decompose  # type: ignore[no-any-return]
    return None


def is_random(overload: Any) -> bool:
    """Whether the op draws random numbers."""
    return torch.Tag.nondeterministic_seeded in overload.tags


def written_arguments(
    overload: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    other_args: Sequence[Any],
    other_kwargs: Mapping[str, Any],
) -> Iterator[tuple[Any, Any]]:
    """The arguments that the op writes to, from two argument lists, in pairs."""
    for position, argument in enumerate(overload._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        if position < len(args):
            yield args[position], other_args[position]
        elif argument.name in kwargs:
            yield kwargs[argument.name], other_kwargs[argument.name]
