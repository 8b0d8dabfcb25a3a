"""What the bring-up tools ask a mode's backend: one interface, written once for each backend.

`Mode.adapter()` gives it. `numdrift analyze`, `partition`, `metrics` and `snapshot` know of backends nothing
besides; a plug-in that has an adapter is served by all of them (docs/guide/add-a-backend.md).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ModeError
from ..records.backend_work import OperatorCall, SupportAnswer, Work
from ..records.mode_registry import registry

if TYPE_CHECKING:
    import torch

    from ..records.mode_spec import ModeSpec

Tell = Callable[[], None]


class Adapter(Protocol):
    """A backend as the tools see it. What a backend does not have raises NotAvailable with the reason."""

    name: str
    """Of the backend, as tables show it: `inductor`, `lazy (TorchScript)`."""

    instruction_set: str
    """What the backend's own instructions are called in reports: `inductor`, `lazy`, `hlo`."""

    executes_at_once: bool  # as eager does
    """Whether an operator is executed where it is called: there are no graphs then, and a phase of a step
    (forward, backward, optimizer) is one execution."""

    def versions(self) -> Mapping[str, str]:
        """Versions of what takes part, by name (`torch`, `torch_xla`)."""

    def observe_support(self, script: str, told: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
        """Within the context `told` hears of every operator that the backend is given. `script` is the path
        of the training script, for the lines. Changes no bit of the results. Raises NotAvailable when it is
        called, not within."""

    def without_execution(self) -> AbstractContextManager[None]:
        """Within the context the backend captures and lowers what it is given and executes nothing: what is
        read from it is zeros. Raises NotAvailable when it is called, not within."""

    def supports(self, node: torch.fx.Node) -> SupportAnswer:
        """Whether the backend can do an aten node of an FX graph, whose `meta["val"]` and those of its inputs
        are fake tensors. The backend itself is asked, never a list."""

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """What executes an aten graph on the backend: it takes the graph's inputs as CPU tensors and gives
        its outputs as a tuple of CPU tensors. `inputs` are examples, fake or real."""

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
    # An attribute that is only annotated is no member of the class, so both are looked at.
    members = (*Adapter.__annotations__, *(name for name in vars(Adapter) if not name.startswith("_")))
    lacking = [name for name in dict.fromkeys(members) if not hasattr(made, name)]
    if lacking:
        raise ModeError(
            str(spec), spec.base, f"its adapter() gives a {type(made).__name__} without {', '.join(lacking)}"
        )
    adapter: Adapter = made
    return adapter


def load_adapter(target: str, spec: ModeSpec) -> Adapter:
    """Make the adapter of one of the rooms of `backends/`, named `room.module:class`, which only a run with a
    bring-up tool needs."""
    module, _, name = target.partition(":")
    made: Adapter = getattr(importlib.import_module(f"numdrift.harness.backends.{module}"), name)(spec)
    return made
