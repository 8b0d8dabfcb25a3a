"""What the bring-up tools ask a mode's backend: one interface, written once for each backend.

`Mode.adapter()` gives it. `numdrift analyze`, `partition`, `metrics` and `snapshot` know of backends nothing besides;
a plug-in that has an adapter is served by all of them (docs/guide/add-a-backend.md).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ..errors import ModeError
from .registry import registry

if TYPE_CHECKING:
    import torch

    from .spec import ModeSpec

Kind = Literal["compile", "execute", "transfer", "fallback"]

Tell = Callable[[], None]


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One execution of an operator on a backend, and whether the backend itself could do it.

    `kind` is the operator (`aten::mul`), `configuration` what of its call decides about support, readable, as
    `complex64[4], complex64[4]`. `call` is the line of the script that it comes from (`train.py:24`, "" where that is not
    known). `instructions` are what the backend made of it, in its own language. Where the backend could not do it,
    `failure_at` says which part of the backend refused (`lazy core`, `inductor lowering`) and `reason` why; both are ""
    for a supported one. `failing` are those of the instructions that it could not do, empty where that is all of them.
    """

    kind: str
    configuration: str
    call: str = ""
    instructions: tuple[str, ...] = ()
    failure_at: str = ""
    reason: str = ""
    failing: tuple[str, ...] = ()

    @property
    def supported(self) -> bool:
        return not self.failure_at


@dataclass(frozen=True, slots=True)
class Work:
    """One piece of a backend's work: a graph compiled or executed, a transfer, an operator that fell back to the CPU.

    `name` is that of the graph or operator, `seconds` how long it took (None where that cannot be measured), `size` the
    operators of the graph or the bytes of the transfer, `cached` whether a compilation was answered from a cache, and
    `call` the line of the script.
    """

    kind: Kind
    name: str
    seconds: float | None = None
    size: int | None = None
    cached: bool | None = None
    call: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a backend can do an operator in one configuration: `reason` is "" where it can."""

    reason: str = ""
    failure_at: str = ""
    instructions: tuple[str, ...] = field(default=())

    @property
    def supported(self) -> bool:
        return not self.reason


class Adapter(Protocol):
    """A backend as the tools see it. What a backend does not have raises NotAvailable with the reason."""

    name: str
    """Of the backend, as tables show it: `inductor`, `lazy (TorchScript)`."""

    instruction_set: str
    """What the backend's own instructions are called in reports: `inductor`, `lazy`, `hlo`."""

    executes_at_once: bool
    """Whether an operator is executed where it is called: there are no graphs then, and a phase of a step (forward,
    backward, optimizer) is one execution."""

    def versions(self) -> Mapping[str, str]:
        """Versions of what takes part, by name (`torch`, `torch_xla`)."""

    def observe_support(
        self, script: str, told: Callable[[OperatorCall], None]
    ) -> AbstractContextManager[None]:
        """Within the context `told` hears of every operator that the backend is given. `script` is the path of the
        training script, for the lines. Changes no bit of the results. Raises NotAvailable when it is called, not within."""

    def without_execution(self) -> AbstractContextManager[None]:
        """Within the context the backend captures and lowers what it is given and executes nothing: what is read from it
        is zeros. Raises NotAvailable when it is called, not within."""

    def supports(self, node: torch.fx.Node) -> Verdict:
        """Whether the backend can do an aten node of an FX graph, whose `meta["val"]` and those of its inputs are fake
        tensors. The backend itself is asked, never a list."""

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """What executes an aten graph on the backend: it takes the graph's inputs as CPU tensors and gives its outputs as
        a tuple of CPU tensors. `inputs` are examples, fake or real."""

    def observe_work(self, script: str, told: Callable[[Work], None]) -> AbstractContextManager[Tell]:
        """Within the context `told` hears of what the backend compiles, executes and transfers. What the context gives
        tells of what has not been told yet, and raises what has failed. Changes no bit of the results, and no graph."""

    def counters(self) -> Mapping[str, int]:
        """The backend's own counters as they stand, by its own names."""

    def report(self) -> str:
        """The backend's own report in its own form; "" where it has none."""


def adapter_for(spec: ModeSpec) -> Adapter:
    """The adapter of a mode. Raises ModeError where what the mode gives is none, with what it lacks."""
    made: Any = registry.load(spec.base)(spec).adapter()
    members = (*Adapter.__annotations__, *(name for name in vars(Adapter) if not name.startswith("_")))
    lacking = [name for name in dict.fromkeys(members) if not hasattr(made, name)]
    if lacking:
        raise ModeError(
            str(spec), spec.base, f"its adapter() gives a {type(made).__name__} without {', '.join(lacking)}"
        )
    adapter: Adapter = made
    return adapter


def load_adapter(target: str, spec: ModeSpec) -> Adapter:
    """Make one of the adapters of `adapters/`, named `module:class`, which only a run with a bring-up tool needs."""
    module, _, name = target.partition(":")
    made: Adapter = getattr(importlib.import_module(f"{__package__}.adapters.{module}"), name)(spec)
    return made
