"""Watch a bare training without numdrift. Python imports this at its start if this folder is on PYTHONPATH.

Environment: BARE_MODE is cpu, compile, lazy or xla, and BARE_RESULT is the file to write. BARE_COMPILE is `off`
(torch.compile returns its argument), `own` (it compiles), or `outermost` (it compiles, also outermost modules). All
three are removed from the environment, so processes that the script starts are not watched.

It sees a training from outside, by public names of torch: the values of each optimizer's parameters after its step, or
those of the script's global variables at the end. It writes shape, dtype and SHA-256 of each tensor as JSON. In lazy
mode and in xla it cuts the graph after each backward and each step.
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
    """Start the mode's backend, and return the function that executes its pending graph."""
    if mode == "lazy":
        importlib.import_module("torch._lazy.ts_backend").init()
        mark: Callable[[], object] = importlib.import_module("torch._lazy").mark_step
        return mark
    if mode == "xla":
        os.environ.setdefault("PJRT_DEVICE", "CPU")
        xla: Any = importlib.import_module("torch_xla")
        xla.device()
        return lambda: xla.sync(wait=True)
    return lambda: None


class Seen:
    """The optimizers that stepped, and the parameters that they left."""

    def __init__(self, torch: Any, cut: Callable[[], object]) -> None:
        self._torch = torch
        self._values: dict[int, tuple[Any, Described]] = {}
        self.cut = cut

    def stepped(self, optimizer: Any, *_: Any) -> None:
        self.cut()
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._values[id(optimizer)] = optimizer, self._described(parameters)

    def parameters(self) -> Described:
        if self._values:
            unique = {id(optimizer.param_groups[0]): values for optimizer, values in self._values.values()}
            return [tensor for values in unique.values() for tensor in values]
        self.cut()
        return self._described(self._in_globals(vars(sys.modules["__main__"])))

    def _in_globals(self, variables: Mapping[str, Any]) -> Iterator[Any]:
        parameters = variables.get("parameters")
        if isinstance(parameters, dict):
            yield from parameters.values()
            return
        for value in list(variables.values()):
            if isinstance(value, self._torch.nn.Module):
                yield from value.parameters()

    def _described(self, tensors: Iterable[Any]) -> Described:
        described = []
        for tensor in tensors:
            plain = tensor.detach().cpu().contiguous().flatten().view(self._torch.uint8)
            digest = hashlib.sha256(bytes(plain.tolist())).hexdigest()
            described.append((list(tensor.shape), str(tensor.dtype).removeprefix("torch."), digest))
        return described


def cut_after_backward(torch: Any, seen: Seen) -> None:
    original = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        seen.cut()

    torch.autograd.backward = backward


def compile_outermost(torch: Any) -> None:
    """Compile each module with parameters that is called outside of every other module.

    The first step after the creation of an optimizer ends this.
    """
    module_class, optimizer_class = torch.nn.Module, torch.optim.Optimizer
    original, create = module_class.__call__, optimizer_class.__init__
    compiled: set[Any] = set()
    open_for_models = [True]

    def call(module: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(module, *args, **kwargs)
        module_class.__call__ = original
        try:
            built = type(module).__module__ == "torch.nn.utils.parametrize"  # called while its model is built
            if (
                open_for_models[0]
                and not built
                and module not in compiled
                and next(module.parameters(), None) is not None
            ):
                compiled.update(module.modules())
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
    """Compile the results of `torch.func.grad_and_value`, once for each function."""
    original, compiled = torch.func.grad_and_value, dict[Any, Any]()

    def grad_and_value(function: Any) -> Any:
        if function not in compiled:
            compiled[function] = torch.compile(original(function))
        return compiled[function]

    torch.func.grad_and_value = grad_and_value


if "BARE_RESULT" in os.environ:
    watch(os.environ.pop("BARE_MODE"), Path(os.environ.pop("BARE_RESULT")), os.environ.pop("BARE_COMPILE"))
