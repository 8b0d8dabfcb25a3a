"""In which ways a block can be shown, and its script in one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from .. import torch_private
from ..errors import NumdriftError
from ..records.culprit import Culprit
from ..records.mode_spec import parse_mode
from .localized_values import NotShown, ShownBlock
from .script_calls import CallWriter, SideCode, recorded_code
from .script_text import Script, Settings
from .script_values import Values
from .storage_flow import SIDES, Side, other

Kind = Literal["calls", "compiled", "recorded"]

MOST_INPUTS = 64 * 2**20
"""Bytes of a script's file."""

RECORDED: Mapping[Side, str] = {"a": "given_a", "b": "given_b"}
"""Names of what is recorded of a side's results."""


class Mode(Protocol):
    """A side's mode: its name and its specification."""

    @property
    def label(self) -> str: ...
    @property
    def spec(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Way:
    """Where the results of each side come from; `computed` says that the exact values are computed, not recorded."""

    kinds: Mapping[Side, Kind]
    computed: bool


def ways(block: ShownBlock, special: Mapping[Side, bool]) -> Iterator[Way]:
    """The ways to try, the plainest first. `special` are the sides with kernels that a plain process does not have."""
    a: Kind = "recorded" if special["a"] else "calls"
    b_calls = block.slices["b"].calls
    generated = bool(b_calls) and all(call.compiled is not None for call in b_calls)
    kinds: tuple[Kind, ...] = ("calls",)
    if special["b"]:
        kinds = ("compiled", "recorded") if generated else ("recorded",)
    for b in kinds:
        computed = block.live and (block.reference is None or {"a": a, "b": b}[block.reference] != "recorded")
        for one in (True, False) if computed else (False,):
            yield Way({"a": a, "b": b}, one)


def script_in(way: Way, block: ShownBlock, culprit: Culprit, modes: Mapping[Side, Mode]) -> Script:
    """The script of a block. Raises NotShown where there can be none."""
    values = Values()
    given = {side: way.kinds[side] == "recorded" or not block.slices[side].calls for side in SIDES}
    codes = {side: _code(block, side, values, given[side]) for side in sorted(SIDES, key=given.__getitem__)}
    exact = None
    if block.ulps and not way.computed:
        exact = recorded_code(block.exact, "given_exact", values)
    if values.size > MOST_INPUTS:
        raise NotShown(f"what it takes are {values.size / 2**20:.0f} MiB, more than {MOST_INPUTS // 2**20}")
    compiled = way.kinds["b"] == "compiled"
    return Script(
        sentences=list(_sentences(way, block, culprit, modes)),
        labels={side: modes[side].label for side in SIDES},
        codes=codes,
        exact=exact,
        reference=block.reference,
        ulps=block.ulps,
        settings=Settings(compiled, _inductor(modes["b"].spec) if compiled else ()),
        threads=torch.get_num_threads(),
        values=values,
    )


def _code(block: ShownBlock, side: Side, values: Values, given: bool) -> SideCode:
    """A side's calls, or where it has none or they are of no use elsewhere, its results as `given`."""
    results = block.results[side]
    if given:
        return recorded_code(results, RECORDED[side], values)
    return CallWriter(block.slices[side], values).code(results, RECORDED[side])


def _inductor(spec: str) -> tuple[str, ...]:
    """The lines that set Inductor's numerics as a mode does."""
    try:
        mode = parse_mode(spec)
        options = {name: torch_private.inductor_option(name, text) for name, text in mode.inductor.items()}
    except NumdriftError:
        return ()
    config = "torch._inductor.config"
    stated = {
        f'{config}.cpp.enable_floating_point_contract_flag = "{mode.contract}"': mode.contract,
        f"{config}.emulate_precision_casts = {mode.emulate_casts == 'on'}": mode.emulate_casts,
        f"{config}.fallback_random = {mode.fallback_random == 'on'}": mode.fallback_random,
    }
    return (
        *(line for line, value in stated.items() if value is not None),
        *(f"{config}.{name} = {value!r}" for name, value in options.items()),
    )


def _sentences(way: Way, block: ShownBlock, culprit: Culprit, modes: Mapping[Side, Mode]) -> Iterator[str]:
    a, b = modes["a"], modes["b"]
    where = f" of {culprit.module}" if culprit.module else ""
    source = f" ({culprit.source})" if culprit.source else ""
    yield (
        f"{culprit.op} in the {culprit.phase}{where}{source}: {b.label} against {a.label} without numdrift."
    )
    for side in SIDES:
        yield _how(way.kinds[side], block, side, modes)
    exact = f"Errors: against side_{block.reference} in double precision{'' if way.computed else ', as recorded'}. "
    yield f"{exact if block.ulps else ''}Exit code 0: the sides differ as they did in the runs; 1: they do not."


def _how(kind: Kind, block: ShownBlock, side: Side, modes: Mapping[Side, Mode]) -> str:
    mode = modes[side]
    if not block.slices[side].calls:
        return f"side_{side}: {mode.label} executes nothing there and goes on with what side_{other(side)} takes."
    if kind == "recorded":
        return (
            f"side_{side}: plain torch lacks the kernel that {mode.spec} has there, "
            "so what it gave on these inputs is in the file."
        )
    how = "as Inductor compiles it" if kind == "compiled" else "as plain calls"
    return f"side_{side}: what {mode.spec} executes, {how}."
