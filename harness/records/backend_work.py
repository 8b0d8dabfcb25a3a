"""What a backend says of its work: operators that it could do or not, graphs compiled and executed, transfers.

Guests write these records down, and reports read them without torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

WorkKind = Literal["compile", "execute", "transfer", "fallback"]


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One execution of an operator on a backend, and whether the backend itself could do it.

    `kind` is the operator (`aten::mul`), `configuration` what of its call decides about support, readable, as
    `complex64[4], complex64[4]`. `call` is the line of the script that it comes from (`train.py:24`, "" where
    that is not known). `instructions` are what the backend made of it, in its own language. Where the backend
    could not do it, `failure_at` says which part of the backend refused (`lazy core`, `inductor lowering`)
    and `reason` why; both are "" for a supported one. `failing` are those of the instructions that it could
    not do, empty where that is all of them."""

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

    kind: WorkKind
    name: str
    seconds: float | None = None
    size: int | None = None
    cached: bool | None = None
    call: str = ""


@dataclass(frozen=True, slots=True)
class SupportAnswer:
    """Whether a backend can do an operator in one configuration: `reason` is "" where it can."""

    reason: str = ""
    failure_at: str = ""
    instructions: tuple[str, ...] = field(default=())

    @property
    def supported(self) -> bool:
        return not self.reason
