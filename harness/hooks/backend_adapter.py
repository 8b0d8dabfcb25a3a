"""The interface of a mode's backend to the bring-up tools, written once for each backend.

`Mode.adapter()` returns it. `numdrift analyze`, `partition`, `metrics` and `snapshot` know nothing else of backends.
So they all serve a plug-in that has an adapter (docs/guide/add-a-backend.md).
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
    """A backend as the tools see it. A method that the backend cannot serve raises NotAvailable with the reason."""

    name: str
    """The backend's name in tables: `inductor`, `lazy (TorchScript)`."""

    instruction_set: str
    """The name of the backend's own instructions in reports: `inductor`, `lazy`, `hlo`."""

    executes_at_once: bool  # as eager does
    """True if an operator is executed where it is called. There are no graphs then, and a phase of a step
    (forward, backward, optimizer) is one execution."""

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the packages that take part, by name (`torch`, `torch_xla`)."""

    def observe_support(self, script: str, report: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
        """Report to `report`, within the context, every operator that the backend is given.

        `script` is the path of the training script, for the lines. Changes no bit of the results. Raises NotAvailable
        when it is called, not within the context."""

    def without_execution(self) -> AbstractContextManager[None]:
        """Have the backend capture and lower what it is given within the context, and execute nothing: values that are
        read from it are zeros. Raises NotAvailable when it is called, not within the context."""

    def supports(self, node: torch.fx.Node) -> SupportAnswer:
        """Say whether the backend can execute an aten node of an FX graph.

        `meta["val"]` of the node and of its inputs are fake tensors. The answer comes from the backend itself, never
        from a list."""

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Return a function that executes an aten graph on the backend.

        It takes the graph's inputs as CPU tensors and returns its outputs as a tuple of CPU tensors. `inputs` are
        examples, fake or real."""

    def observe_work(self, script: str, report: Callable[[Work], None]) -> AbstractContextManager[Tell]:
        """Report to `report`, within the context, what the backend compiles, executes and transfers.

        The context's value is a function that reports what has not been reported yet, and raises what has failed.
        Changes no bit of the results, and no graph."""

    def counters(self) -> Mapping[str, int]:
        """Return the current values of the backend's own counters, by its own names."""

    def report(self) -> str:
        """Return the backend's own report in its own form; "" if it has none."""


def adapter_for(spec: ModeSpec) -> Adapter:
    """Return the adapter of a mode. Raises ModeError, with the missing members, if the mode returns something else."""
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
    """Make the adapter `target`, named `folder.module:class` within `backends/`. Only a run with a bring-up tool needs
    it."""
    module, _, name = target.partition(":")
    made: Adapter = getattr(importlib.import_module(f"numdrift.harness.backends.{module}"), name)(spec)
    return made
