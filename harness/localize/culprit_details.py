"""Writes what a culprit's card shows of its block: both sides' code, and their errors over the real inputs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..records.codec import json_text, plain, put
from ..records.culprit_detail import CALLS, COMPILED, DETAIL, NOTHING, RECORDED, CulpritDetail, ExecutedSide
from .errors_over_inputs import errors_over_inputs
from .formulas import formula_of
from .localized_values import NotShown, ShownBlock, Values
from .script_calls import CallWriter, SideCode
from .storage_flow import SIDES, Side

MOST_CHARACTERS = 20_000
"""Of a side's lines."""


def write_detail(
    path: Path, block: ShownBlock, codes: Mapping[Side, SideCode], kinds: Mapping[Side, str], *, errors: bool
) -> None:
    """Write the file of a block whose script has these `codes`, of these `kinds`; with `errors` over its inputs.

    A culprit is told without the file where anything goes wrong."""
    with suppress(Exception):  # whatever it is, the script is written and says what matters
        known = {side: _behind(block, side, codes[side], kinds[side]) for side in SIDES}
        detail = CulpritDetail(
            {side: _executed(block, side, known[side], kinds[side]) for side in SIDES},
            errors_over_inputs(block, known) if errors else None,
        )
        content = {"schema": DETAIL.schema, **plain(detail)}
        put(path, json_text(content, indent=None))


def _behind(block: ShownBlock, side: Side, code: SideCode, kind: str) -> SideCode:
    """The calls of a side; of one whose results are recorded, those that gave them."""
    if kind == "recorded" and block.slices[side].calls:
        with suppress(NotShown):
            return CallWriter(block.slices[side], Values()).code(block.results[side], "given")
    return code


def _executed(block: ShownBlock, side: Side, code: SideCode, kind: str) -> ExecutedSide:
    if not block.slices[side].calls:
        return ExecutedSide(NOTHING)
    how = {"calls": CALLS, "compiled": COMPILED, "recorded": RECORDED}[kind]
    shown = sum(map(len, code.lines)) <= MOST_CHARACTERS
    lines, formula = (code.lines, formula_of(code.lines)) if shown else ((), ())
    return ExecutedSide(how, tuple(code.parameters), tuple(lines), tuple(formula))
