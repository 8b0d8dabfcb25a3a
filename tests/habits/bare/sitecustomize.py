"""Watches a bare training without numdrift; python imports it at its start where this folder is on PYTHONPATH.

Environment: BARE_MODE is cpu, compile, lazy or xla, BARE_RESULT the file to write. BARE_COMPILE is `off` (calls of
torch.compile give back what they got), `own` (they are left alone), or `outermost` (and outermost modules are compiled).
They are taken out of the environment, so processes that the script starts are left alone.

What an outside observer sees of a training, by public names of torch: the values of each optimizer's parameters when its
step has ended, else those of the script's global variables at the end. As JSON, shape, dtype and SHA-256 of each tensor.
In lazy mode and in xla it cuts the graph after each backward and each step.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

Described = list[tuple[list[int], str, str]]


def watch(mode: str, result: Path, compiling: str) -> None:
    torch: Any = importlib.import_module("torch")
    seen = Seen(torch, started(mode))
    importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(seen.stepped)
    if mode in ("lazy", "xla"):
        cut_after_backward(torch, seen)
    if compiling == "off":
        torch.compile = lambda model=None, **_: model if model is not None else lambda function: function
        torch.nn.Module.compile = lambda *_, **__: None
    elif compiling == "outermost":
        compile_outermost(torch)
    atexit.register(lambda: result.write_text(json.dumps(seen.parameters()), encoding="utf-8"))


def started(mode: str) -> Callable[[], object]:
    """Start the mode's backend; gives what executes its pending graph."""
    if mode == "lazy":
        importlib.import_module("torch._lazy.ts_backend").init()
        mark: Callable[[], object] = importlib.import_module("torch._lazy").mark_step
        return mark
    if mode == "xla":
        os.environ.setdefault("PJRT_DEVICE", "CPU")
        xla: Any = importlib.import_module("torch_xla")
        xla.device()
        return lambda: xla.sync(wait=True)
    return _nothing


class Seen:
    """The optimizers that stepped, and what their parameters then were."""

    def __init__(self, torch: Any, cut: Callable[[], object]) -> None:
        self._torch = torch
        self._values: dict[int, tuple[Any, Described]] = {}
        self.cut = cut

    def stepped(self, optimizer: Any, *_: Any) -> None:
        self.cut()
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        self._values[id(optimizer)] = optimizer, self._described(parameters)

    def parameters(self) -> Described:
        if self._values:
            unique = {id(optimizer.param_groups[0]): values for optimizer, values in self._values.values()}
            return [one for values in unique.values() for one in values]
        self.cut()
        return self._described(self._in_globals(vars(sys.modules["__main__"])))

    def _in_globals(self, variables: Mapping[str, Any]) -> Iterator[Any]:
        modules = [one for one in variables.values() if isinstance(one, self._torch.nn.Module)]
        named = variables.get("parameters")
        yield from (named.values() if isinstance(named, dict) else (p for one in modules for p in one.parameters()))

    def _described(self, tensors: Iterable[Any]) -> Described:
        found = []
        for tensor in tensors:
            plain = tensor.detach().cpu().contiguous().flatten().view(self._torch.uint8)
            digest = hashlib.sha256(bytes(plain.tolist())).hexdigest()
            found.append((list(tensor.shape), str(tensor.dtype).removeprefix("torch."), digest))
        return found


def _nothing() -> None:
    pass


def cut_after_backward(torch: Any, seen: Seen) -> None:
    original = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        seen.cut()

    torch.autograd.backward = backward


def compile_outermost(torch: Any) -> None:
    """Compile each module with parameters that is called from outside of any, until the first step that follows the
    making of an optimizer."""
    module_class, optimizer_class = torch.nn.Module, torch.optim.Optimizer
    original, create = module_class.__call__, optimizer_class.__init__
    known: set[Any] = set()
    open_for_models = [True]

    def call(module: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(module, *args, **kwargs)
        module_class.__call__ = original
        try:
            built = type(module).__module__ == "torch.nn.utils.parametrize"  # called while its model is built
            if open_for_models[0] and not built and module not in known and next(module.parameters(), None) is not None:
                known.update(module.modules())
                if type(module).__module__.startswith("torch.nn"):  # which torch runs eagerly as an outermost frame
                    module._compiled_call_impl = torch.compile(lambda *a, **k: module._call_impl(*a, **k))
                elif not isinstance(module, torch.jit.ScriptModule):
                    module.compile()
            return original(module, *args, **kwargs)
        finally:
            module_class.__call__ = call

    def made(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        open_for_models[0] = True
        create(optimizer, *args, **kwargs)

    def stepped(*_: Any) -> None:
        open_for_models[0] = False

    compile_functions(torch)
    module_class.__call__ = call
    optimizer_class.__init__ = made
    importlib.import_module("torch.optim.optimizer").register_optimizer_step_post_hook(stepped)


def compile_functions(torch: Any) -> None:
    """Compile what `torch.func.grad_and_value` makes, once for each function that it is given."""
    original, made = torch.func.grad_and_value, dict[Any, Any]()

    def grad_and_value(function: Any) -> Any:
        if function not in made:
            made[function] = torch.compile(original(function))
        return made[function]

    torch.func.grad_and_value = grad_and_value


if "BARE_RESULT" in os.environ:
    watch(os.environ.pop("BARE_MODE"), Path(os.environ.pop("BARE_RESULT")), os.environ.pop("BARE_COMPILE"))
