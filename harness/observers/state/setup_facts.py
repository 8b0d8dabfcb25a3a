"""Records the setup of a run: initial values, hyper-parameters, generators and batches.

If two runs of a script differ in one of these, the way in which they are executed does not explain their difference.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...hooks.mode_protocol import Moment
from ...hooks.observer import Observer, RecordingSurroundings
from ...records.values.digest_record import RECORD_BYTES, pack, unreadable
from ...script.named_tensors import NamedTensor
from ...tape.shards import local_tensor
from ...torch_private.compiler.compiling import compiled_frames
from ...torch_private.dispatching import unseen, version_of, without_dispatch_modes
from ..values.digest import Digester
from .batches import BatchArgument, Batches, Read, has_value
from .optimizer_state import PLAIN, hyperparameters
from .script_generators import GeneratorDigests
from .variation import perturb_


@dataclass(frozen=True, slots=True)
class StepSetup:
    """The setup of one step: the generators at its beginning, and the arguments of the root modules."""

    generators: Mapping[str, str]
    batches: Sequence[Sequence[BatchArgument]] | None


@dataclass(frozen=True, slots=True)
class WaitingValues:
    """A tensor whose first value a lazy graph has yet to compute."""

    described: dict[str, Any]
    tensor: weakref.ref[torch.Tensor]
    version: int | None


class InitialTensors:
    """Writes an `initial` event for the tensors of each adopted module, before the module's first call.

    A value that a lazy graph has yet to compute is read after the backward, unless it has changed by then; in that case
    its digest marks it as unreadable.
    """

    def __init__(self, digester: Digester, read: Read, write: Callable[..., None]) -> None:
        self._digester = digester
        self._read = read
        self._write = write
        self.waiting: list[WaitingValues] = []

    def adopted(self, step: int, named: Sequence[NamedTensor]) -> None:
        """Record the current values of these tensors."""
        with unseen():
            readable: list[tuple[dict[str, Any], torch.Tensor]] = []
            for entry in named:
                if has_value(entry.tensor):
                    readable.append((entry.describe(), entry.tensor))
                else:  # held weakly: a tensor that is kept alive becomes an output of the graph
                    version = version_of(entry.tensor)
                    self.waiting.append(WaitingValues(entry.describe(), weakref.ref(entry.tensor), version))
            self._record(step, readable, [])

    def settled(self, step: int) -> None:
        """Record the tensors that were waited for, now that the graph has been executed."""
        waiting, self.waiting = self.waiting, []
        with unseen():
            readable: list[tuple[dict[str, Any], torch.Tensor]] = []
            lost: list[dict[str, Any]] = []
            for entry in waiting:
                tensor = entry.tensor()
                if tensor is None or version_of(tensor) != entry.version or not has_value(tensor):
                    numel = torch.Size(entry.described["shape"]).numel()
                    lost.append({**entry.described, "digest": pack(unreadable(numel)).hex()})
                else:
                    readable.append((entry.described, tensor))
            self._record(step, readable, lost)

    def _record(
        self, step: int, readable: Sequence[tuple[dict[str, Any], torch.Tensor]], lost: Sequence[dict[str, Any]]
    ) -> None:
        records = self._digester.digest(self._read([tensor for _, tensor in readable]))
        parts = (records[start : start + RECORD_BYTES] for start in range(0, len(records), RECORD_BYTES))
        written = [{**described, "digest": part.hex()} for (described, _), part in zip(readable, parts, strict=True)]
        if written or lost:
            self._write("initial", step=step, tensors=[*written, *lost])


class SetupFacts(Observer):
    """Records the setup from the record level `params` on.

    At any record level, it also perturbs the initial parameters if the run requests it.
    """

    doing = "recording the setup"

    def __init__(self, around: RecordingSurroundings) -> None:
        config, mode, digester = around.config, around.mode, around.digester
        self._compiled_before = compiled_frames()
        self._mode_compiles = mode.capabilities.compiles
        self._perturb = None if config.resync else config.perturb
        self._training = around.training
        self._write = around.write
        self._active = config.records("params")
        self._names: set[str] = set()
        self._roots: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._initial = InitialTensors(digester, mode.read, around.write)
        self._generators = GeneratorDigests(mode.device, digester)
        self._batches: Batches | None = Batches(digester, mode.in_place) if self._active else None
        self._begun: Mapping[str, str] = {}
        self._share, self._step = around.share, 0
        if self._active:  # the script has not begun; it has not used a generator whose state is still this one later
            around.write("unused-generators", states=self._generators.read())
        self._ended: dict[int, StepSetup] = {}
        self._groups: list[Any] = []
        self._unsettled: list[int] = []

    def forget(self) -> None:
        self._active, self._batches = False, None
        self._ended.clear()

    def calls_unseen(self) -> None:
        self._batches = None

    def watches_calls(self, step: int) -> bool:
        if self._batches is None:
            return False
        if self._mode_compiles or compiled_frames() <= self._compiled_before:
            return self._share.has_details(step + 1)
        # From now on, hooks on calls would be traced and would change the code that the script compiles.
        self._batches = None
        text = "the script compiles functions itself: the arguments of its models are not recorded after this step"
        self._write("notice", step=step, text=text)
        return False

    def taken_over(self, module: torch.nn.Module, step: int) -> None:
        self._roots.add(module)
        if not self._active and self._perturb is None:
            return
        new = self._newly_seen(self._training.named_of_roots())
        # Perturb before recording: the record shows the values that the training starts from.
        if self._perturb is not None:
            perturb_([local_tensor(entry.tensor) for entry in new if entry.kind == "parameter"], self._perturb)
        if self._active:
            self._initial.adopted(step, new)

    def called_with(self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if self._batches is not None and module in self._roots and self._share.has_details(self._step):
            with self._share.measured():
                self._batches.called(args, kwargs)

    def begins(self, step: int) -> None:
        self._step = step
        if self._active and self._share.has_details(step):
            with self._share.measured():
                self._begun = self._generators.read()

    def optimizer_steps(self, step: int) -> None:
        """Record the hyper-parameters if they have changed."""
        if not self._active:
            return
        with without_dispatch_modes():
            optimizers = self._training.optimizers()
            # Compared at every step, to find changed groups without looking at every parameter.
            groups = [
                [(key, (id(item), len(item)) if key == "params" else _comparable(item)) for key, item in group.items()]
                for optimizer in optimizers
                for group in optimizer.param_groups
            ]
            if groups == self._groups:
                return
            self._groups = groups
            named = self._training.named()
            names = {id(entry.tensor): entry.name for entry in named}
            self._write("hyper", step=step, optimizers=hyperparameters(optimizers, names))
            # A tensor that belongs to no module is seen for the first time now, before its first update. Those of
            # modules are seen when the mode takes the modules over, and a moving average is not taken over.
            new = [entry for entry in named if entry.name not in self._names]
            of_roots = {entry.name for entry in self._training.named_of_roots()} if new else set()
            self._initial.adopted(step, self._newly_seen([entry for entry in new if entry.name not in of_roots]))

    def tensors_found(self, step: int) -> None:
        if self._active:
            with without_dispatch_modes():
                self._initial.adopted(step, self._newly_seen(self._training.named()))

    def closing(self, moment: Moment, step: int) -> None:
        if moment == "backward" and self._active and self._initial.waiting:
            self._unsettled.append(step)
        elif moment == "step" and self._active:
            begun, self._begun = self._begun, {}
            batches = None if self._batches is None or not self._share.has_details(step) else self._batches.take()
            self._ended[step] = StepSetup(begun, batches)

    def settled(self, moment: Moment, step: int) -> None:
        # Tensors that were found after that backward wait for the next one: only values that exist are read.
        if moment == "backward" and step in self._unsettled:
            self._unsettled.remove(step)
            self._initial.settled(step)

    def fields(self, step: int) -> Mapping[str, Any]:
        setup = self._ended.pop(step, None)
        if setup is None:
            return {}
        fields: dict[str, Any] = {"generators": dict(setup.generators)} if setup.generators else {}
        if setup.batches is not None and self._batches is not None:
            fields["batches"] = self._batches.settled(setup.batches)
        return fields

    def _newly_seen(self, named: Sequence[NamedTensor]) -> list[NamedTensor]:
        """Return the tensors that are seen for the first time."""
        new = [entry for entry in named if entry.name not in self._names]
        self._names.update(entry.name for entry in new)
        return new


def _comparable(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, torch.Tensor):
        on_cpu = value.is_cpu and value.numel() == 1
        return float(value) if on_cpu else (id(value), version_of(value))
    return [_comparable(item) for item in value] if isinstance(value, (list, tuple)) else id(value)
