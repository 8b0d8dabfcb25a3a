"""The tensors that a script carries from step to step beside parameters, buffers and the optimizers' state.

A recurrent memory, a queue of negatives, a replay buffer, or an average of the weights may live in a variable of the
script, in a list, in an attribute, or in a module that is not trained, such as an `AveragedModel`. A step's result is
not only what it leaves in the model: a fault that spoils such a tensor spoils the next step, or the model that is saved
in the end.

The variables are read where a step begins and ends, from the script's running functions. A tensor is named by its path:
`hidden`, `queue.0`, `memory.keys`. Those that no step has changed, such as a data set, are left out.
"""

from __future__ import annotations

import inspect
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ...records.modes.mode_registry import DEFERRED_DEVICES
from ...records.run.step_files import CARRIED
from ...script.named_tensors import TrainingTensors
from ...tape.origin import OwnFiles, own_files
from ...tape.storages import is_plain

DEPTH = 3
"""The number of containers and attributes that a path may pass."""

MOST = 256
"""The largest number of elements of a container that are looked at."""

MOST_TENSORS = 4096
"""The largest number of tensors that are looked at."""

LARGEST = 2**26
"""The largest size of a tensor that is kept, in bytes. What is larger is hardly carried over: activations, logits."""

TOTAL = 2**28
"""The largest size of all tensors that are kept in one state, in bytes. Those of the innermost function come first."""

OF_FRAME_ALONE = 3
"""The number of references to the dictionary of a frame's variables that only the frame has: the frame's, the one in
`_variables`, and the argument of `getrefcount`."""

Look = tuple[int, int, int]
"""The identity of a tensor's object, its address, and its version."""


class CarriedTensors:
    """Follows the script's own tensors from step to step. `script` is the path of the script."""

    def __init__(self, script: str, training: TrainingTensors) -> None:
        self._files = own_files(script)
        self._training = training
        self._looks: dict[str, Look] | None = None
        self._changing: set[str] = set()

    def begins(self) -> None:
        """Note what exists before a step."""
        with suppress(Exception):  # an object of the script may raise anything
            self._looks = {name: _look(tensor) for name, tensor in self._all()}

    def ended(self) -> None:
        """Find out which tensors the step has made or written since `begins`."""
        before, self._looks = self._looks, None
        with suppress(Exception):
            for name, tensor in self._all() if before is not None else ():
                if before is not None and before.get(name) != _look(tensor):
                    self._changing.add(name)

    def named(self) -> dict[str, torch.Tensor]:
        """Return the tensors that steps change, by the key `carried NAME`, as many as TOTAL allows."""
        found, free = dict[str, torch.Tensor](), TOTAL
        for key, tensor in self.all_named().items():
            size = tensor.numel() * tensor.element_size()
            if key.removeprefix(CARRIED) in self._changing and size <= free:
                found[key] = tensor
                free -= size
        return found

    def all_named(self) -> dict[str, torch.Tensor]:
        """Return all tensors in the script's variables, by the key `carried NAME`."""
        with suppress(Exception):
            return {CARRIED + name: tensor for name, tensor in self._all()}
        return {}

    def _all(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors in the script's variables that have no other name, each once."""
        addresses = {_address(entry.tensor) for entry in self._training.named()}
        visited, names = set[int](), set[str]()
        for scope, of_frame in _scopes(self._files):
            for variable, value in scope:
                if variable.startswith("__"):
                    continue
                for path, tensor in _tensors(value, variable, DEPTH, visited, self._files):
                    name = path if path not in names else f"{of_frame}.{path}"
                    if (
                        name in names
                        or len(names) == MOST_TENSORS
                        or not is_kept(tensor)
                        or _address(tensor) in addresses
                    ):
                        continue
                    if not tensor.dim():  # a loss, a metric or a time, by which a script may decide when to end
                        continue
                    names.add(name)
                    yield name, tensor


def is_kept(tensor: torch.Tensor) -> bool:
    """Return whether a tensor of the script is looked at: it is a plain view of memory, and not too large."""
    return is_plain(tensor) and 0 < tensor.numel() * tensor.element_size() <= LARGEST


def _address(tensor: torch.Tensor) -> int:
    """Return where a tensor's values are; on devices that defer ops, the identity of the object."""
    has_memory = tensor.layout == torch.strided and not tensor.is_meta and tensor.device.type not in DEFERRED_DEVICES
    return tensor.data_ptr() if has_memory and not is_lazy(tensor) else id(tensor)


def _look(tensor: torch.Tensor) -> Look:
    version = -1 if tensor.is_inference() else tensor._version
    return id(tensor), _address(tensor), version


def _scopes(files: OwnFiles) -> Iterator[tuple[list[tuple[str, Any]], str]]:
    """Yield the variables of the script's running functions, innermost first, and its globals; with a name of each."""
    has_globals = False
    for frame in files.frames(sys._getframe(1)):
        has_globals = has_globals or frame.f_locals is vars(sys.modules["__main__"])
        yield _variables(frame), frame.f_code.co_name
    if not has_globals:
        yield list(vars(sys.modules["__main__"]).items()), "main"


def _variables(frame: FrameType) -> list[tuple[str, Any]]:
    """Return the variables of a running function.

    Before Python 3.13, a function's frame keeps the dictionary in which it shows its variables, and with it their
    values, until it shows them again. It is emptied, so that no tensor lives longer than in the script. That leaves the
    variables themselves alone, unless a debugger or a profiler in Python writes them back. The dictionary is left as it
    is if the script has it, too, as the result of `locals()`.
    """
    variables = frame.f_locals
    items = [(name, value) for name, value in variables.items() if value is not variables]
    is_copy = frame.f_code.co_flags & inspect.CO_OPTIMIZED and sys.version_info < (3, 13)
    is_of_frame_alone = sys.getrefcount(variables) <= OF_FRAME_ALONE
    if is_copy and is_of_frame_alone and sys.gettrace() is None and sys.getprofile() is None:
        variables.clear()
    return items


def _tensors(
    value: Any, name: str, depth: int, visited: set[int], files: OwnFiles
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in a value, its elements, and the attributes of the script's own objects and of modules.

    Those of the trained modules are among them; the caller leaves out what has another name.
    """
    if isinstance(value, torch.Tensor):
        if id(value) not in visited:
            visited.add(id(value))
            yield name, value
        return
    if not depth or id(value) in visited:
        return
    parts: list[tuple[Any, Any]] = []
    if type(value) is dict:
        parts = list(value.items())
    elif type(value) in (list, tuple, deque):
        parts = list(enumerate(value))
    elif isinstance(value, torch.nn.Module):
        for tensors in (value.named_parameters(name), value.named_buffers(name)):
            for path, tensor in tensors:
                yield from _tensors(tensor, path, depth, visited, files)
        for path, module in value.named_modules():
            own = {key: item for key, item in vars(module).items() if not key.startswith("_")}
            # its modules are those that `named_modules` returns
            own = {key: item for key, item in own.items() if not isinstance(item, torch.nn.Module)}
            parts += [(f"{path}.{key}" if path else key, item) for key, item in own.items()]
    elif _is_of_script(value, files):
        parts = list(vars(value).items())
    if not parts:
        return
    visited.add(id(value))
    for key, item in parts[:MOST]:
        if not isinstance(item, (int, float, str, bytes)):
            yield from _tensors(item, f"{name}.{key}", depth - 1, visited, files)


def _is_of_script(value: Any, files: OwnFiles) -> bool:
    """Check whether a value is an instance of a class that the user's files define."""
    if isinstance(value, type) or not type(value).__dictoffset__:
        return False
    module = sys.modules.get(type(value).__module__)
    return type(value).__module__ == "__main__" or (getattr(module, "__file__", None) or "") in files
