"""torch.compile: Inductor, or another backend of the ladder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from ... import torch_private
from ...errors import NotAvailable
from ...hooks.backend_adapter import Tell
from ...records.backend_work import OperatorCall, SupportAnswer, Work
from ...torch_private.inductor_lowering import compile_by_backend, compile_by_inductor
from .compiling_backends import asked_of_backend, asked_of_inductor, inductor_as_stated
from .mode import require_backend
from .support import observe_inductor
from .work import CompiledWork

if TYPE_CHECKING:
    from ...records.mode_spec import ModeSpec


class CompileAdapter:
    instruction_set = "inductor"
    executes_at_once = False

    def __init__(self, spec: ModeSpec) -> None:
        """Raises UsageError for a backend that torch.compile does not know."""
        self.spec = spec
        self.name = self._backend
        require_backend(spec.name, self.name)

    def versions(self) -> Mapping[str, str]:
        return {"torch": torch.__version__, **torch_private.code_generators()}

    def observe_support(
        self, script: str, told: Callable[[OperatorCall], None]
    ) -> AbstractContextManager[None]:
        self._require_inductor("support analysis")
        return observe_inductor(script, told)

    def without_execution(self) -> AbstractContextManager[None]:
        self._require_inductor("a dry run")
        return torch_private.inductor_without_execution()

    def _require_inductor(self, what: str) -> None:
        if self.spec.backend not in (None, "inductor"):
            raise NotAvailable(
                f"{what} in mode {self.spec.name!r}",
                f"backend {self.spec.backend} lowers nothing, it runs what was captured with ATen's kernels",
                "leave the key backend out",
            )

    def supports(self, node: torch.fx.Node) -> SupportAnswer:
        if self._backend != "inductor":
            return asked_of_backend(node, self._backend)
        with inductor_as_stated(self.spec):
            return asked_of_inductor(node)

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if self._backend != "inductor":
            return compile_by_backend(self._backend, graph, inputs)
        with inductor_as_stated(self.spec):
            return compile_by_inductor(graph, inputs)

    @property
    def _backend(self) -> str:
        return self.spec.backend or "inductor"

    def observe_work(self, script: str, told: Callable[[Work], None]) -> AbstractContextManager[Tell]:
        return CompiledWork(script, told)

    def counters(self) -> Mapping[str, int]:
        return torch_private.compiler_counters()

    def report(self) -> str:
        return torch_private.compile_times()
