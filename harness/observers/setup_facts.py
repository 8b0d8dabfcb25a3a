"""What a run starts from and is given on its way: initial values, hyper-parameters, generators and batches.

Two runs of a script that differ in one of these do not differ by how they were executed.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from .. import torch_private
from ..hooks.mode_protocol import Mode, compiles
from ..records.run_config import RunConfig
from ..script.named_tensors import NamedTensor
from ..script.training_tensors import TrainingTensors
from ..tape.journal_writing import EventLog
from ..tape.shards import local_tensor
from .batches import Argument, Batches
from .digest import Digester
from .generator_digests import GeneratorDigests
from .hyperparameters import PLAIN, hyperparameters
from .initial import InitialTensors
from .variation import perturb_


@dataclass(frozen=True, slots=True)
class StepSetup:
    """Of one step: the generators at its beginning, and what the root modules were called with."""

    generators: Mapping[str, str]
    batches: Sequence[Sequence[Argument]] | None


class SetupFacts:
    """Records the setup from the record level `params` on; `guard` keeps its failures out of the training.

    It also moves the initial parameters where the run asks for that.
    """

    def __init__(
        self,
        config: RunConfig,
        mode: Mode,
        training: TrainingTensors,
        digester: Digester,
        log: EventLog,
        guard: AbstractContextManager[None],
    ) -> None:
        self._compiled_before = torch_private.compiled_frames()
        self._mode_compiles = compiles(mode)
        self._perturb = None if config.resync else config.perturb
        self._training = training
        self._log = log
        self._guard = guard
        self._active = config.records("params")
        self._names: set[str] = set()
        self._roots: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._initial = InitialTensors(digester, mode.read, log.write)
        self._generators = GeneratorDigests(mode.device, digester)
        self._batches: Batches | None = Batches(digester, mode.read) if self._active else None
        self._begun: Mapping[str, str] = {}
        self._groups: list[Any] = []

    def stop(self) -> None:
        """Record nothing any more."""
        self._active, self._batches = False, None

    def calls_unseen(self) -> None:
        """The models are called where nothing sees their arguments: say nothing of batches."""
        self._batches = None

    def watches_calls(self, step: int) -> bool:
        """Whether the module calls are to be reported after the models are known."""
        if self._batches is None:
            return False
        if self._mode_compiles or torch_private.compiled_frames() <= self._compiled_before:
            return True
        self._batches = None
        with self._guard:
            self._log.write(
                "notice",
                step=step,
                text="the script compiles functions by itself: what its models are called with is not recorded "
                "after this step",
            )
        return False

    def adopted(self, step: int, module: torch.nn.Module) -> None:
        """A root module has been taken over and is about to be called for the first time."""
        self._roots.add(module)
        if not self._active and self._perturb is None:
            return
        with self._guard:
            new = self._unknown(self._training.named_of_roots())
            if self._perturb is not None:
                perturb_([local_tensor(one.tensor) for one in new if one.kind == "parameter"], self._perturb)
            if self._active:
                self._initial.adopted(step, new)

    def called(self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """An outermost module is about to be called, a root module or another."""
        if self._batches is not None and module in self._roots:
            with self._guard:
                self._batches.called(args, kwargs)

    def after_backward(self, step: int) -> Callable[[], None] | None:
        """What is to be done once the values that a backward has left can be read."""
        if not self._active or not self._initial.waiting:
            return None
        return functools.partial(self._backward_settled, step)

    def _backward_settled(self, step: int) -> None:
        with self._guard:
            self._initial.settled(step)

    def begin(self) -> None:
        """A step begins."""
        if self._active:
            with self._guard:
                self._begun = self._generators.read()

    def begin_first(self) -> None:
        """The first step begins, unless it has begun already."""
        if not self._begun:
            self.begin()

    def optimizer_steps(self, step: int) -> None:
        """An optimizer is about to step: write its hyper-parameters down where they changed."""
        if not self._active:
            return
        with self._guard, torch_private.without_dispatch_modes():
            optimizers = self._training.optimizers()
            groups = [_group_key(group) for one in optimizers for group in one.param_groups]
            if groups == self._groups:
                return
            self._groups = groups
            named = self._training.named()
            names = {id(one.tensor): one.name for one in named}
            self._log.write("hyper", step=step, optimizers=hyperparameters(optimizers, names))
            # What belongs to no module is first seen here, before its first update.
            self._initial.adopted(step, self._unknown(named))

    def found(self, step: int) -> None:
        """Parameters of no module were found, before their first update."""
        if self._active:
            with self._guard, torch_private.without_dispatch_modes():
                self._initial.adopted(step, self._unknown(self._training.named()))

    def _unknown(self, named: Sequence[NamedTensor]) -> list[NamedTensor]:
        """Those of the tensors that are seen for the first time."""
        new = [one for one in named if one.name not in self._names]
        self._names.update(one.name for one in new)
        return new

    def end(self) -> StepSetup:
        """A step has ended: give what there is to say of it."""
        begun, self._begun = self._begun, {}
        return StepSetup(begun, None if self._batches is None else self._batches.taken())

    def describe(self, setup: StepSetup) -> dict[str, Any]:
        """Fields of the step's event, once its values can be read."""
        if not self._active:
            return {}
        fields: dict[str, Any] = {"generators": dict(setup.generators)}
        if setup.batches is not None and self._batches is not None:
            fields["batches"] = self._batches.settled(setup.batches)
        return fields


def _group_key(group: Mapping[str, Any]) -> list[Any]:
    """What tells whether a group of parameters has changed, without looking at each of them."""
    return [
        (key, (id(value), len(value)) if key == "params" else _comparable(value))
        for key, value in group.items()
    ]


def _comparable(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, torch.Tensor):
        on_cpu = value.is_cpu and value.numel() == 1
        return float(value) if on_cpu else (id(value), torch_private.version_of(value))
    return [_comparable(one) for one in value] if isinstance(value, (list, tuple)) else id(value)
