"""The bring-up tools' parts in the script's process: each looks on, writes its own files, and changes nothing.

`RunConfig.instruments` says which there are. One that fails is told of in a notice and leaves; the others, the recording
and the training go on.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..records.run_config import RunConfig
from .mode_protocol import Mode

if TYPE_CHECKING:
    import torch

    from ..script.named_tensors import NamedTensor

Progress = Literal["forward", "backward", "optimizer", "closing", "step", "end"]
"""A root module is about to be called for the first time in a step; a backward begins; it has ended; the mode is about to
close a piece of work (and may execute a graph); the next step begins; the script has ended."""

INSTRUMENTS: Mapping[str, str] = {
    "partition": "numdrift.harness.observers.partition.partition_instrument:PartitionInstrument",
    "metrics": "numdrift.harness.observers.metrics_instrument:MetricsInstrument",
    "support": "numdrift.harness.observers.support_instrument:SupportInstrument",
    "profile": "numdrift.harness.observers.profile.profile_instrument:ProfileInstrument",
    "snapshots": "numdrift.harness.observers.snapshots.snapshot_instrument:SnapshotInstrument",
}
"""By name: `module:class`, of which `Instrument` is the form."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an instrument works with: `folder` is that of the run (its journal's parent), `options` are its own.

    `named` gives the parameters and buffers that are known by then, `write` puts an event into the journal and `notice` a
    text that whoever reads the run should know.
    """

    config: RunConfig
    options: Mapping[str, Any]
    mode: Mode
    folder: Path
    named: Callable[[], list[NamedTensor]]
    write: Callable[..., None]
    notice: Callable[[str], None]
    bound: Callable[[], Mapping[str, torch.Tensor]] = dict
    """What the script's tensors are to it: `parameter net.0.weight`, `gradient net.0.weight`, `state net.0.weight.exp_avg`."""


class Instrument(Protocol):
    """Made before the script's first line, once the mode has prepared the process. Any method may raise: the instrument
    is closed then and the training goes on."""

    def __init__(self, surroundings: Surroundings) -> None: ...

    def install(self) -> None:
        """Begin: the script is about to be executed."""

    def adopted(self, module: torch.nn.Module) -> None:
        """A root module is about to be called for the first time; its mode has taken it over already."""

    def reached(self, progress: Progress, step: int) -> None:
        """The training is at this point of step `step`; with `step` and `end` that is the one about to begin."""

    def phase(self, name: str, begins: bool) -> None:
        """The script enters, or leaves, a phase that it names (`numdrift.phase`)."""

    def close(self) -> None:
        """Take every hook out and write what is left to write. Called once, also after a failure."""

    def forget(self) -> None:
        """This is a fork of the process: write nothing any more."""


class Instruments:
    """Leads what happens in the training to each instrument."""

    def __init__(self, surroundings: Callable[[Mapping[str, Any]], Surroundings], config: RunConfig) -> None:
        self._there: dict[str, Instrument] = {}
        self._notice: Callable[[str], None] | None = None
        for name, options in config.instruments.items():
            around = surroundings(options)
            self._notice = around.notice
            module, _, attribute = INSTRUMENTS[name].partition(":")
            with self._guarded(name):
                self._there[name] = getattr(importlib.import_module(module), attribute)(around)

    def install(self) -> None:
        self._each(lambda one: one.install())

    def adopted(self, module: torch.nn.Module) -> None:
        self._each(lambda one: one.adopted(module))

    def called(self, module: torch.nn.Module) -> None:
        """An outermost module is about to be called. For those instruments that have a method `called(module)`."""
        self._each(lambda one: getattr(one, "called", lambda module: None)(module))

    def reached(self, progress: Progress, step: int) -> None:
        self._each(lambda one: one.reached(progress, step))

    def phase(self, name: str, *, begins: bool) -> None:
        self._each(lambda one: one.phase(name, begins))

    def failed(self, message: str) -> None:
        """The script has ended by an error. For those instruments that have a method `failed(message)`."""
        self._each(lambda one: getattr(one, "failed", lambda message: None)(message))

    def close(self) -> None:
        while self._there:
            name, one = self._there.popitem()
            with self._guarded(name):
                one.close()

    def forget(self) -> None:
        self._each(lambda one: one.forget())
        self._there.clear()

    def _each(self, does: Callable[[Instrument], None]) -> None:
        for name, one in list(self._there.items()):
            with self._guarded(name):
                does(one)

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001, a tool's failure is none of the training's
            self._left(name, error)

    def _left(self, name: str, error: Exception) -> None:
        one = self._there.pop(name, None)
        if self._notice is not None:
            self._notice(f"{name} failed and stops here: {type(error).__name__}: {error}")
        if one is not None:
            with self._guarded(name):
                one.close()
