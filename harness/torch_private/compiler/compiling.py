"""torch.compile: compilation in place, Inductor's numerics and decompositions, and the place of a traced op."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import torch

from ...errors import UsageError
from ..dispatching import current_autograd_node
from ..patches import Patches, Undo
from ..presence import private, require

WRAPPED = "_orig_mod"

KINDS_OF_ARGUMENTS = 10_000
"""The largest number of combinations of shapes and dtypes for which a function is compiled; torch's default is 8."""


def is_compiled_in_place(module: torch.nn.Module) -> bool:
    """Return whether `module.compile()` was called."""
    return getattr(module, "_compiled_call_impl", None) is not None


def compile_in_place(module: torch.nn.Module, backend: Any, **arguments: Any) -> None:
    """Make calls of `module` go through torch.compile; the module stays the same object.

    `arguments` are further arguments of torch.compile. `module.compile()` does the same, except for classes whose
    forward is torch's own, such as nn.Sequential: dynamo does not trace torch's files as an outermost frame, and
    silently runs them eagerly (torch 2.13). Such a module is entered through a frame of numdrift.
    """
    require(module, "_compiled_call_impl")
    module._compiled_call_impl = compiled_call(module, backend, **arguments)


def compiled_call(module: torch.nn.Module, backend: Any, **arguments: Any) -> Callable[..., Any]:
    """Return the function that `compile_in_place` installs as the module's call."""

    def through_ours(*args: Any, **kwargs: Any) -> Any:
        return module._call_impl(*args, **kwargs)

    of_torch = type(module).forward.__module__.partition(".")[0] == "torch"
    entered = through_ours if of_torch else module._call_impl
    compiled: Callable[..., Any] = own_compile()(entered, backend=backend, **arguments)
    return compiled


def own_compile() -> Callable[..., Any]:
    """Return torch's own `torch.compile`, even if the script's calls of it are redirected."""
    original: Callable[..., Any] = inspect.unwrap(torch.compile)
    return original


def undo_compile_in_place(module: torch.nn.Module) -> None:
    """Make calls of `module` eager again."""
    vars(module).pop("_compiled_call_impl", None)


@contextmanager
def inductor_settings_kept(options: Iterable[str]) -> Iterator[None]:
    """Restore Inductor's numerics and these options of its config after the context. Skip options that do not exist."""
    patch = private("torch._inductor.config", "patch")
    config = importlib.import_module("torch._inductor.config")
    settings = {}
    for name in (*NUMERICS, *options):
        with suppress(AttributeError):
            settings[name] = functools.reduce(getattr, name.split("."), config)
    with patch(settings):
        yield


def compile_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function, anew for each combination of shapes and dtypes. Its calls never fall back to eager mode."""
    compiled = own_compile()(function, fullgraph=True, dynamic=False)
    patched = private("torch._dynamo.config", "patch")

    def call(*args: Any, **kwargs: Any) -> Any:
        with patched(recompile_limit=KINDS_OF_ARGUMENTS), _seen_by_compilers():
            return compiled(*args, **kwargs)

    return call


def _seen_by_compilers() -> AbstractContextManager[object]:
    """Return a context in which dispatch modes, and so compilers, see ops even if the thread excludes those modes."""
    guard = getattr(torch._C, "_ForceDispatchKeyGuard", None)
    hidden = private("torch._C", "_dispatch_tls_local_exclude_set")()
    python = private("torch._C", "DispatchKey").Python
    if guard is None or not hidden.has(python):
        return nullcontext()
    context: AbstractContextManager[object] = guard(
        private("torch._C", "_dispatch_tls_local_include_set")(), hidden.remove(python)
    )
    return context


def compiled_frames() -> int:
    """Return the number of Python frames that dynamo has compiled in this process."""
    if "torch._dynamo.utils" not in sys.modules:
        return 0
    counters = private("torch._dynamo.utils", "counters")
    # fullgraph=True counts no frame (torch 2.13)
    return int(counters["frames"]["ok"] or counters["stats"]["unique_graphs"])


def has_inductor(kind: str) -> bool:
    """Return whether Inductor generates code for a type of device; True if this torch does not say."""
    try:
        importlib.import_module("torch._inductor.compile_fx")
        common = importlib.import_module("torch._inductor.codegen.common")
        common.init_backend_registration()
        return common.get_scheduling_for_device(kind) is not None
    except (ImportError, AttributeError):
        return True


def set_inductor_numerics(*, contract: bool | None, emulate_casts: bool | None, fallback_random: bool | None) -> None:
    """Set how Inductor contracts a*b+c, emulates eager's casts and draws random numbers; None changes nothing.

    contract: contract a*b+c to a fused multiply-add
    emulate_casts: round to lower precision where eager does
    fallback_random: draw random numbers with eager's kernels
    """
    if contract is not None:
        cpp = private("torch._inductor.config", "cpp")
        require(cpp, "enable_floating_point_contract_flag")
        cpp.enable_floating_point_contract_flag = "fast" if contract else "off"
    if emulate_casts is not None:
        config = importlib.import_module("torch._inductor.config")
        require(config, "emulate_precision_casts")
        config.emulate_precision_casts = emulate_casts  # type: ignore[attr-defined]
    if fallback_random is not None:
        config = importlib.import_module("torch._inductor.config")
        require(config, "fallback_random")
        config.fallback_random = fallback_random  # type: ignore[attr-defined]


def set_traced_rnn(on: bool) -> None:
    """Set whether dynamo traces nn.RNN, nn.GRU and nn.LSTM; by default, it leaves them to eager mode."""
    config = importlib.import_module("torch._dynamo.config")
    require(config, "allow_rnn")
    config.allow_rnn = on  # type: ignore[attr-defined]


def set_graph_caches(on: bool) -> None:
    """Set whether torch takes compiled graphs from its caches, those of AOTAutograd and of Inductor."""
    for module, name in (
        ("torch._functorch.config", "enable_autograd_cache"),
        ("torch._inductor.config", "fx_graph_cache"),
    ):
        config = importlib.import_module(module)
        require(config, name)
        setattr(config, name, on)


def draws_by_eager() -> bool:
    """Return whether Inductor is set to draw random numbers with eager's kernels."""
    return bool(getattr(sys.modules.get("torch._inductor.config"), "fallback_random", False))


NUMERICS = ("cpp.enable_floating_point_contract_flag", "emulate_precision_casts", "fallback_random")
"""The options that `set_inductor_numerics` sets."""

SWITCHES = {"on": True, "true": True, "off": False, "false": False}


def set_inductor_options(options: Mapping[str, str]) -> None:
    """Set options of `torch._inductor.config` by their dotted names, as in `{"cpp.simdlen": "1"}`.

    Raises UsageError for a name that the config lacks, or a value that is not of the option's type.
    """
    config = importlib.import_module("torch._inductor.config")
    for name, text in options.items():
        setattr(config, name, inductor_option(name, text))


def inductor_option(name: str, text: str) -> Any:
    """Return a text converted to the type of an option of Inductor.

    Raises UsageError as `set_inductor_options` does.
    """
    config = importlib.import_module("torch._inductor.config")
    options = private("torch._inductor.config", "_config")
    if name not in options:
        close = difflib.get_close_matches(name, options, n=5, cutoff=0.4)
        hint = f"similar options are {', '.join(close)}" if close else "the source of the config lists all options"
        raise UsageError(f"inductor.{name}: torch._inductor.config has no such option; {hint}")
    wanted = config.get_type(name)
    kinds = typing.get_args(wanted) or (wanted,)  # both types of `bool | None`
    # The possible values of the text, the narrowest type first: `1` is a number before it is a word.
    readings: list[Any] = [None] if text == "none" else []
    readings += [SWITCHES[text]] if text in SWITCHES else []
    for kind in (int, float, str):
        with suppress(ValueError):
            readings.append(kind(text))
    for value in readings:
        if type(value) in kinds or (value is None and types.NoneType in kinds) or value in kinds:
            return value
    raise UsageError(f"inductor.{name}={text}: a value of type {getattr(wanted, '__name__', wanted)} is needed")


def inductor_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return a copy of the table of decompositions that Inductor applies."""
    return dict(private("torch._inductor.decomposition", "select_decomp_table")())


class DecompositionTable:
    """A replacement for torch's function that returns a table of decompositions. It calls `begins` before each graph.

    In Inductor's cache key, the names in `changed` represent the table. The ops that replace the changed ops are part
    of the graph, and so of the key.
    """

    def __init__(
        self, table: Mapping[Any, Callable[..., Any]], changed: Sequence[str], begins: Callable[[], None]
    ) -> None:
        self._table = table
        self._changed = tuple(changed)
        self._begins = begins

    def __call__(self) -> dict[Any, Callable[..., Any]]:
        self._begins()
        return dict(self._table)

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (f"numdrift decompositions without {self._changed}",)


def replace_inductor_decompositions(table: DecompositionTable) -> Undo:
    """Make Inductor, and the other backends of torch that use its decompositions, apply `table`; return the undo.

    The table that torch returns must not be edited: torch caches it, and nothing would notice the change. The cache of
    AOTAutograd ignores decompositions, so this cache is off until the undo.
    """
    compiling = importlib.import_module("torch._inductor.compile_fx")
    config = importlib.import_module("torch._functorch.config")
    private("torch._inductor.compile_fx", "select_decomp_table")
    require(config, "enable_autograd_cache")
    with Patches("swapped decompositions") as patches:
        patches.replace(compiling, "select_decomp_table", table)
        patches.wrap(config, "enable_autograd_cache", lambda before: False)
    return patches.undo


def is_being_traced() -> bool:
    """Return whether a compiler is writing the graph that it will compile, and not only looking at shapes."""
    return private("torch.fx.experimental.proxy_tensor", "get_proxy_mode")() is not None


def traced_place() -> tuple[bool, str]:
    """Return whether the op that a compiler is tracing is in the backward, and the path of its module.

    The path begins below the outermost module, whose own path is "". A backward op has the path of the forward op with
    the same autograd sequence number.
    """
    meta = torch.fx.traceback.get_current_meta()
    if current_autograd_node() is None:
        return False, _path_in(meta)
    # The numbers of the autograd nodes that are being traced, the innermost last.
    numbers = meta.get("grad_fn_seq_nr") or [None]
    tracing = private("torch.fx.experimental.proxy_tensor", "get_proxy_mode")()
    nodes = () if tracing is None else tracing.tracer.graph.nodes
    return True, next((_path_in(node.meta) for node in nodes if node.meta.get("seq_nr") == numbers[-1]), "")


def without_wrapper(path: str) -> str:
    """Return the path of a module or tensor without the name under which `torch.compile(model)` keeps the model."""
    return ".".join(part for part in path.split(".") if part != WRAPPED)


def _path_in(meta: Mapping[str, Any]) -> str:
    """Return the path of a traced op's innermost module: `net.1` for `L['self'].net.1`, "" for `L['module']` itself."""
    stack = list((meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]) if stack else ""
    plain = re.sub(r"\['?(\w+)'?\]", r".\1", re.sub(r"^L\['\w+'\]", "", path)).replace("._modules", "")
    return without_wrapper(plain.strip("."))


def is_traced(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a stand-in that a compiler uses for another tensor while it traces."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return False
    fake = private("torch._subclasses.fake_tensor", "FakeTensor")
    functional = private("torch._subclasses.functional_tensor", "FunctionalTensor")
    return isinstance(tensor, (fake, functional))
