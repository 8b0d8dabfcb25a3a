"""torch.compile for those who ask about single operators: what Inductor, or another backend, can do of an
aten node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
import torch.fx

from ...errors import NotAvailable
from ...records.backend_work import SupportAnswer
from ...torch_private.compile_work import compile_times, compiler_counters
from ...torch_private.compiling import inductor_settings_kept, set_inductor_numerics, set_inductor_options
from ...torch_private.inductor_lowering import code_generators, compile_by_backend, inductor_without_execution, lower
from ..one_node import examples, one_node

if TYPE_CHECKING:
    from ...records.mode_spec import ModeSpec
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from ...hooks.backend_adapter import Tell
from ...records.backend_work import OperatorCall, Work
from ...torch_private.inductor_lowering import compile_by_inductor
from .mode import require_backend
from .support import observe_inductor
from .work import CompiledWork

if TYPE_CHECKING:
    from ...records.mode_spec import ModeSpec

# What Inductor, and other backends of torch.compile, can do of an aten node.


@contextmanager
def inductor_as_stated(spec: ModeSpec) -> Iterator[None]:
    """Have Inductor be configured as a mode states it, for a while."""
    with inductor_settings_kept(spec.inductor):
        set_inductor_numerics(
            contract=None if spec.contract is None else spec.contract == "fast",
            emulate_casts=None if spec.emulate_casts is None else spec.emulate_casts == "on",
            fallback_random=None if spec.fallback_random is None else spec.fallback_random == "on",
        )
        set_inductor_options(spec.inductor)
        yield


def asked_of_inductor(node: torch.fx.Node) -> SupportAnswer:
    """Whether Inductor lowers a node by itself: it is decomposed and lowered alone, and no code is
    generated."""
    alone = one_node(node)
    try:
        lowering = lower(alone.graph, lambda: [kind.empty() for kind in alone.inputs])
    except NotAvailable:
        raise
    except Exception as error:  # noqa: BLE001, whatever stops the lowering is the answer
        return SupportAnswer(_said(error), "inductor lowering")
    if lowering.fallbacks:
        return SupportAnswer(f"falls back to {', '.join(lowering.fallbacks)}", "inductor lowering", lowering.operations)
    return SupportAnswer(instructions=lowering.operations)


def asked_of_backend(node: torch.fx.Node, backend: str) -> SupportAnswer:
    """Whether another backend of torch.compile takes a node: it compiles it alone, and executes it once.

    It refuses where it raises and eager execution does not.
    """
    alone = one_node(node)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            compile_by_backend(backend, alone.graph, examples(alone.inputs))(*examples(alone.inputs))
        except Exception as error:  # noqa: BLE001, as above
            try:
                alone.graph(*examples(alone.inputs))
            except Exception:  # noqa: BLE001, these values are refused by the op itself
                return SupportAnswer()
            return SupportAnswer(_said(error), backend)
    return SupportAnswer()


def _said(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


class CompileAdapter:
    instruction_set = "inductor"
    executes_at_once = False

    def __init__(self, spec: ModeSpec) -> None:
        """Raises UsageError for a backend that torch.compile does not know."""
        self.spec = spec
        self.name = self._backend
        require_backend(spec.name, self.name)

    def versions(self) -> Mapping[str, str]:
        return {"torch": torch.__version__, **code_generators()}

    def observe_support(self, script: str, told: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
        self._require_inductor("support analysis")
        return observe_inductor(script, told)

    def without_execution(self) -> AbstractContextManager[None]:
        self._require_inductor("a dry run")
        return inductor_without_execution()

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
        return compiler_counters()

    def report(self) -> str:
        return compile_times()
