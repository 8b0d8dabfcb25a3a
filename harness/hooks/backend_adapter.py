"""The interface through which the bring-up tools use a mode's backend. Each backend implements it once.

`Mode.adapter()` returns the implementation. `numdrift analyze`, `partition`, `metrics` and `snapshot` use backends only
through this interface, so they all work with a plug-in that has an adapter (docs/guide/add-a-backend.md).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ModeError
from ..records.modes.mode_registry import registry
from ..records.tools.backend_work import OperatorCall, SupportAnswer, Work

if TYPE_CHECKING:
    import torch

    from ..records.modes.mode_spec import ModeSpec

Tell = Callable[[], None]


class Adapter(Protocol):
    """The interface of a backend. A method that the backend cannot support raises NotAvailable with the reason."""

    name: str
    """The backend's name in tables: `inductor`, `lazy (TorchScript)`."""

    instruction_set: str
    """The name of the backend's instruction set in reports: `inductor`, `lazy`, `hlo`."""

    executes_at_once: bool  # as eager does
    """True if the backend executes an op when it is called. Such a backend has no graphs, and a phase of a step
    (forward, backward, optimizer) counts as one execution."""

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the packages that the backend uses, by name (`torch`, `torch_xla`)."""

    def observe_support(self, script: str, report: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
        """Return a context that calls `report` with every operator that the backend receives.

        `script` is the path of the training script, to find the line of each call. The context changes no bit of the
        results. This method itself raises NotAvailable, not the entry into the context."""

    def without_execution(self) -> AbstractContextManager[None]:
        """Return a context in which the backend captures and lowers ops and executes nothing.

        Values that are read from the backend are zeros. This method itself raises NotAvailable, not the entry into the
        context."""

    def supports(self, node: torch.fx.Node) -> SupportAnswer:
        """Return whether the backend can execute an aten node of an FX graph.

        `meta["val"]` of the node and of its inputs are fake tensors. The backend itself provides the answer, never a
        list of ops."""

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        """Return a function that executes an aten graph on the backend.

        The function takes the graph's inputs as CPU tensors and returns the graph's outputs as a tuple of CPU tensors.
        `inputs` are examples, fake or real."""

    def observe_work(self, script: str, report: Callable[[Work], None]) -> AbstractContextManager[Tell]:
        """Return a context that calls `report` with each compilation, execution and transfer of the backend.

        The context's value is a function that reports all pending work and raises the error of any work that failed.
        The context changes neither a bit of the results nor a graph."""

    def counters(self) -> Mapping[str, int]:
        """Return the current values of the backend's counters, under the backend's names."""

    def report(self) -> str:
        """Return the backend's report in the backend's format; "" if it has none."""


def adapter_for(spec: ModeSpec) -> Adapter:
    """Return the adapter of a mode. Raises ModeError, which names the missing members, if it is incomplete."""
    made: Any = registry.load(spec.base)(spec).adapter()
    # An attribute that is only annotated is not in vars(Adapter).
    members = (*Adapter.__annotations__, *(name for name in vars(Adapter) if not name.startswith("_")))
    lacking = [name for name in dict.fromkeys(members) if not hasattr(made, name)]
    if lacking:
        raise ModeError(
            str(spec), spec.base, f"its adapter() returns a {type(made).__name__} without {', '.join(lacking)}"
        )
    adapter: Adapter = made
    return adapter


def load_adapter(target: str, spec: ModeSpec) -> Adapter:
    """Create the adapter of the class `target`, which is `folder.module:class` within `backends/`.

    The import is deferred because only a run with a bring-up tool needs an adapter.
    """
    module, _, name = target.partition(":")
    made: Adapter = getattr(importlib.import_module(f"numdrift.harness.backends.{module}"), name)(spec)
    return made
