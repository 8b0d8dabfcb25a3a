"""The functions that a training script calls to describe itself.

These are `numdrift.log`, `step`, `steps`, `phase`, `mark_step` and `device`, and the functions that show tensors:
`print` and `after_step`. Every function works in every mode. Without a recording (`python train.py`) they do nothing,
or only what plain Python would do, so they can stay in the script. Importing them does not import torch.
"""

from __future__ import annotations

import builtins
import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ..errors import UsageError

if TYPE_CHECKING:
    import torch

Item = TypeVar("Item")


def log(**values: Any) -> None:
    """Record numbers of the current step by name. Each number is a Python number or a tensor of one element.

        numdrift.log(loss=loss, accuracy=correct / total)

    `loss` replaces the loss that numdrift finds (the tensor whose `backward()` is called). A value belongs to the
    current step. A value that is logged after `optimizer.step()` and before the next forward belongs to the step that
    has just ended. If a name is logged twice in a step, the later value counts. Losses are an exception: all are kept,
    and the first is the step's loss. The call computes nothing and waits for nothing: tensors are read when the step
    has ended.
    """
    listener = connection.listener
    if listener is not None:
        listener.log(values)


def step() -> None:
    """End the current step.

        for batch in loader:
            weights = update(weights, batch)
            numdrift.step()

    Use this function if the script has no torch optimizer, or if a step has more than one `optimizer.step()`. From the
    first call on, the script itself marks the ends of its steps, and optimizers no longer end them. A call before the
    training begins ends no step; it only announces that the script marks the ends of its steps. The same is true of
    a first call right after an `optimizer.step()`, which has already ended the step.
    """
    listener = connection.listener
    if listener is not None:
        listener.end_step()


class Steps(Generic[Item]):
    """The result of `steps`: an iterable with the same items, which ends a step after each item."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Item]:
        if connection.listener is not None:
            connection.listener.own_steps()
        for item in self._items:
            yield item
            step()

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]


def steps(iterable: Iterable[Item]) -> Steps[Item]:
    """Iterate over the items, and end a step after each of them.

        for batch in numdrift.steps(loader):
            train(batch)

    Within the loop, optimizers end no steps. `continue` ends the step, `break` does not.
    """
    return Steps(iterable)


def phase(name: str) -> AbstractContextManager[None]:
    """Name the phase of the ops in a `with` block: forward, backward, optimizer, data or any other name.

    with numdrift.phase("data"):
        batch = augment(batch)
    """
    listener = connection.listener
    return nullcontext() if listener is None else listener.phase(name)


def mark_step() -> None:
    """In lazy and xla mode, cut and execute the pending graph, according to the mode's `mark_step` policy.

    In other modes, do nothing, so that a script needs no special case for lazy tensors.
    """
    listener = connection.listener
    if listener is not None:
        listener.mark_step()


def print(*values: Any, sep: str = " ", end: str = "\n") -> None:
    """Print, as Python's `print` does, once the step has been executed.

        numdrift.print("hidden", hidden)

    Tensors are read when the step has ended, so the call computes nothing and waits for nothing. In lazy mode it cuts
    no graph, and within a compiled function it breaks no graph. If a tensor is changed in place before the step ends,
    the changed values are printed. Pass the tensor itself, not a string that contains it. Between two steps, and
    under plain Python, the values are printed immediately.
    """
    listener = connection.listener
    if listener is None:
        builtins.print(*values, sep=sep, end=end)
    else:
        listener.show(values, sep, end)


def after_step(closure: Callable[..., Any], *values: Any) -> None:
    """Call `closure(*values)` once the step has been executed. Tensors among the values are passed as CPU tensors.

        numdrift.after_step(lambda loss: writer.add_scalar("loss", loss, epoch), loss)

    Like `numdrift.print`, this call cuts no graph in lazy mode. Within a compiled function, however, it breaks the
    graph. An error in the closure is raised where the step ends. Between two steps, and under plain Python, the
    closure is called immediately.
    """
    listener = connection.listener
    if listener is None:
        closure(*values)
    else:
        listener.run_after_step(closure, values)


def device() -> torch.device:
    """Return the device to train on: the mode's device.

    Under plain Python, return the device that the environment variable `DEVICE` names, or else the CPU.

    model = Net().to(numdrift.device())
    """
    listener = connection.listener
    name = os.environ.get("DEVICE", "cpu") if listener is None else listener.device
    chosen: torch.device = importlib.import_module("torch").device(name)
    return chosen


# The connection between these functions and the recording of the process.


class Listener(Protocol):
    """A recording's reactions to the script's calls. None of them raises an error in the script."""

    @property
    def device(self) -> str:
        """The torch device of the mode."""

    def log(self, values: Mapping[str, Any]) -> None:
        """Record values of the step (tensors or numbers) by name. `loss` is the step's loss."""

    def own_steps(self) -> None:
        """Remember that the script itself marks the ends of its steps from now on."""

    def end_step(self) -> None:
        """End the current step, since the script marks its end."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Return a context whose ops belong to this phase."""

    def mark_step(self) -> None:
        """Cut the pending graph, if the mode has lazy tensors and its policy allows this."""

    def show(self, values: Sequence[Any], sep: str, end: str) -> None:
        """Print these values, which may include tensors, once the step has been executed."""

    def show_copies(self, values: Sequence[torch.Tensor], text: str) -> None:
        """Insert these values into the placeholders of a text, and print it, once the step has been executed."""

    def run_after_step(self, closure: Callable[..., Any], values: Sequence[Any]) -> None:
        """Call the closure with these values once the step has been executed."""


class Connection:
    """The recording of this process, if there is one. A fork of the process is not recorded."""

    def __init__(self) -> None:
        self.listener: Listener | None = None
        self._named = ""
        self._follows_forks = False

    def open(self, listener: Listener, named: str) -> None:
        """Connect a recording. `named` is its name in messages. Raises UsageError if one is already connected."""
        self.refuse_second()
        self.listener, self._named = listener, named
        if not self._follows_forks:
            self._follows_forks = True  # the hook cannot be removed, so a single one serves all recordings
            os.register_at_fork(after_in_child=self.close)

    def refuse_second(self) -> None:
        """Raise UsageError if a recording is connected."""
        if self.listener is not None:
            raise UsageError(f"this process is already recording {self._named}: end that recording first")

    def close(self) -> None:
        """Disconnect the recording, if there is one."""
        self.listener = None


connection = Connection()


# The script's choice of the executions that a snapshot keeps.

OnSnapshot = Callable[..., str]


class Registered:
    """The function that the script has registered, None if there is none."""

    function: OnSnapshot | None = None


registered = Registered()


def on_snapshot(function: OnSnapshot | None) -> OnSnapshot | None:
    """Let `function` choose which parts of each execution are kept. Return the previously registered function, or None.

        def choose(name, device_index, execution_count, step):
            return "inputs outputs" if step == 5 else ""

        numdrift.on_snapshot(choose)

    `function` must return "inputs", "outputs", "inputs outputs" or "" (nothing). Pass `None` to unregister it. `name`
    is the graph's name, `device_index` the number of the device, and `execution_count` the number of earlier executions
    of the graph on this device. A function with three parameters does not receive the step. The function is called only
    under `numdrift snapshot take`, so `on_snapshot` can stay in the script.
    """
    former, registered.function = registered.function, function
    return former
