"""The ways to show a block in a script, and the script for each way.

calls       plain calls of torch's ops, as the tape recorded them
compiled    the same calls, compiled by Inductor
recorded    the recorded results, if plain torch lacks a side's kernel
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from ...errors import NumdriftError
from ...records.modes.mode_spec import parse_mode
from ...records.results.culprit import Culprit
from ...torch_private.compiler.compiling import inductor_option
from ..align.storage_flow import SIDES, Side, other
from .localized_values import NotShown, ShownBlock, Values
from .script_calls import CallWriter, SideCode, recorded_code
from .script_text import Script, ScriptSettings

Kind = Literal["calls", "compiled", "recorded"]

MOST_INPUTS = 64 * 2**20
"""The largest size of a script's file, in bytes."""

RECORDED: Mapping[Side, str] = {"a": "given_a", "b": "given_b"}
"""The prefix of the names of each side's recorded results."""


class ShownMode(Protocol):
    """A side's mode: its name and its specification."""

    @property
    def label(self) -> str: ...
    @property
    def spec(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Way:
    """One way to show a block.

    kinds: the origin of each side's results.
    computed: True if the script computes the exact values, False if they are recorded.
    """

    kinds: Mapping[Side, Kind]
    computed: bool


def ways(block: ShownBlock, special: Mapping[Side, bool]) -> Iterator[Way]:
    """Yield the ways to try, the plainest first.

    `special[side]` is True if the side has kernels that a plain process does not have.
    """
    a: Kind = "recorded" if special["a"] else "calls"
    b_calls = block.slices["b"].calls
    generated = bool(b_calls) and all(call.compiled is not None for call in b_calls)
    kinds: tuple[Kind, ...] = ("calls",)
    if special["b"]:
        kinds = ("compiled", "recorded") if generated else ("recorded",)
    for b in kinds:
        computed = block.live and (block.reference is None or {"a": a, "b": b}[block.reference] != "recorded")
        for is_computed in (True, False) if computed else (False,):
            yield Way({"a": a, "b": b}, is_computed)


def script_in(way: Way, block: ShownBlock, culprit: Culprit, modes: Mapping[Side, ShownMode]) -> Script:
    """Return the script of a block. Raises NotShown if no script can show the block in this way."""
    values = Values()
    is_recorded = {side: way.kinds[side] == "recorded" or not block.slices[side].calls for side in SIDES}
    # Write calls first. Their arguments are named after the schema, and recorded results with the same bits reuse these
    # names.
    codes = {side: _code(block, side, values, is_recorded[side]) for side in sorted(SIDES, key=is_recorded.__getitem__)}
    for side, lines in (culprit.setting.statements if culprit.setting is not None else {}).items():
        if side in SIDES and way.kinds[side] == "calls":
            codes[side].lines[:0] = lines
    exact = None
    if block.ulps and not way.computed:
        exact = recorded_code(block.exact, "given_exact", values)
    if values.size > MOST_INPUTS:
        raise NotShown(f"its values take {values.size / 2**20:.0f} MiB; the limit is {MOST_INPUTS // 2**20} MiB")
    compiled = way.kinds["b"] == "compiled"
    return Script(
        sentences=list(_sentences(way, block, culprit, modes)),
        labels={side: modes[side].label for side in SIDES},
        codes=codes,
        exact=exact,
        reference=block.reference,
        ulps=block.ulps,
        settings=ScriptSettings(compiled, inductor_lines(modes["b"].spec) if compiled else ()),
        threads=torch.get_num_threads(),
        values=values,
    )


def _code(block: ShownBlock, side: Side, values: Values, is_recorded: bool) -> SideCode:
    """Write the code of a side: its calls, or its recorded results if `is_recorded`."""
    results = block.results[side]
    if is_recorded:
        return recorded_code(results, RECORDED[side], values)
    return CallWriter(block.slices[side], values, aligned=block.by_layout).code(results, RECORDED[side])


def inductor_lines(spec: str) -> tuple[str, ...]:
    """Return the lines that configure Inductor's numerics as in a mode."""
    try:
        mode = parse_mode(spec)
        options = {name: inductor_option(name, text) for name, text in mode.inductor.items()}
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


def _sentences(way: Way, block: ShownBlock, culprit: Culprit, modes: Mapping[Side, ShownMode]) -> Iterator[str]:
    a, b = modes["a"], modes["b"]
    module = f" of {culprit.module}" if culprit.module else ""
    source = f" ({culprit.source})" if culprit.source else ""
    phase = f" in the {culprit.phase}" if culprit.setting is None else ""  # a setting acts in several phases
    yield f"{culprit.op}{phase}{module}{source}: {b.label} against {a.label} without numdrift."
    for side in SIDES:
        label, spec, kind = modes[side].label, modes[side].spec, way.kinds[side]
        if not block.slices[side].calls:
            yield f"side_{side}: {label} executes no op here and continues with the inputs of side_{other(side)}."
        elif kind == "recorded":
            yield (
                f"side_{side}: plain torch lacks the kernel that {spec} uses here, so the file holds its recorded "
                "results for these inputs."
            )
        else:
            how = "as Inductor compiles them" if kind == "compiled" else "as plain calls"
            yield f"side_{side}: the calls that {spec} executes, {how}."
    for argument in culprit.layouts:
        looks = [f"{argument.look[side]} {tuple(argument.stride[side])} in {modes[side].label}" for side in SIDES]
        yield f"Argument {argument.number} ({argument.name}) has equal values on both sides: {', '.join(looks)}."
    exact = f"Errors: against side_{block.reference} in double precision{'' if way.computed else ', as recorded'}. "
    yield f"{exact if block.ulps else ''}Exit code 0: the sides differ as they did in the runs; 1: they do not."
