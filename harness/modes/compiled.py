"""Eager + torch.compile: root modules are compiled in place at their first call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from numdrift.kernels.swaps.engine import Swaps

from .. import torch_private
from ..adoption.parallel import within_wrapper
from ..errors import AdoptionError, UsageError, nearest
from .eager import EagerMode
from .protocol import Moment, ScriptFacts
from .spec import LADDER, ModeSpec


class CompileMode:
    """`module.compile(backend=...)` for every root module; everything else as in eager mode."""

    def __init__(self, spec: ModeSpec) -> None:
        self.spec = spec
        self.backend = spec.backend or "inductor"
        self.eager = EagerMode(spec)
        self._verified = False
        self.device = self.eager.device = spec.device or "cpu"

    def prepare(self, script: ScriptFacts, swaps: Swaps) -> None:
        self.eager.set_up(swaps)
        if self.backend not in torch.compiler.list_backends(exclude_tags=()):
            known = {*LADDER, *torch.compiler.list_backends()}
            raise UsageError(
                f"mode {self.spec.name!r}: there is no backend {self.backend!r}; {nearest(self.backend, known)}"
            )
        if self.backend == "inductor":
            torch_private.set_inductor_numerics(
                contract=None if self.spec.contract is None else self.spec.contract == "fast",
                emulate_casts=_is_on(self.spec.emulate_casts),
                fallback_random=_is_on(self.spec.fallback_random),
            )
            torch_private.set_inductor_options(self.spec.inductor)
        elif self.spec.inductor:
            raise UsageError(
                f"mode {self.spec.name!r}: inductor.{next(iter(self.spec.inductor))} has no effect with backend "
                f"{self.backend}; leave one of them out"
            )
        swaps.install(self.device, compiled=True)

    def adopt(self, module: torch.nn.Module) -> None:
        self.eager.adopt(module)
        module = within_wrapper(module)
        if not torch_private.is_compiled_in_place(module):
            torch_private.compile_in_place(module, self.backend)

    def close(self, moment: Moment, settled: Callable[[], None] | None = None) -> None:
        self.eager.close(moment, settled)
        if moment == "step" and not self._verified:
            self._verified = True
            if not torch_private.compiled_frames():
                raise AdoptionError(
                    "nothing was compiled in the first step, so this run would be plain eager: "
                    "call the model itself (model(x)), not its parts"
                )

    def read(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return self.eager.read(tensors)


def _is_on(value: str | None) -> bool | None:
    return None if value is None else value == "on"
