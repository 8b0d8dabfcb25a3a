"""The details of a culprit's block: both sides' code, and their errors over the real inputs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ...records.codec import json_text, plain, put
from ...records.results.culprit_detail import CALLS, COMPILED, DETAIL, NOTHING, RECORDED, CulpritDetail, ExecutedSide
from ..align.storage_flow import SIDES, Side
from .errors_over_inputs import errors_over_inputs
from .formulas import formula_of
from .localized_values import NotShown, ShownBlock, Values
from .script_calls import CallWriter, SideCode

MOST_CHARACTERS = 20_000
"""A side's lines are shown only if they have at most this many characters."""


def write_detail(
    path: Path, block: ShownBlock, codes: Mapping[Side, SideCode], kinds: Mapping[Side, str], *, errors: bool
) -> None:
    """Write the details of a block. `codes` is the code of each side in the block's script; `kinds` is the code's kind.

    With `errors`, the errors over the block's inputs are added. If anything fails, no file is written, and the culprit
    is reported without details.
    """
    with suppress(Exception):  # the details are optional, and may fail in any op
        shown_codes = {side: _behind(block, side, codes[side], kinds[side]) for side in SIDES}
        detail = CulpritDetail(
            {side: _executed(block, side, shown_codes[side], kinds[side]) for side in SIDES},
            errors_over_inputs(block, shown_codes) if errors else None,
        )
        content = {"schema": DETAIL.schema, **plain(detail)}
        put(path, json_text(content, indent=None))


def _behind(block: ShownBlock, side: Side, code: SideCode, kind: str) -> SideCode:
    """Return the code of a side. If the script has only recorded results, return the code of the calls that made
    them."""
    if kind == "recorded" and block.slices[side].calls:
        with suppress(NotShown):
            return CallWriter(block.slices[side], Values()).code(block.results[side], "given")
    return code


def _executed(block: ShownBlock, side: Side, code: SideCode, kind: str) -> ExecutedSide:
    if not block.slices[side].calls:
        return ExecutedSide(NOTHING)
    way = {"calls": CALLS, "compiled": COMPILED, "recorded": RECORDED}[kind]
    shown = sum(map(len, code.lines)) <= MOST_CHARACTERS
    lines, formula = (code.lines, formula_of(code.lines)) if shown else ((), ())
    return ExecutedSide(way, tuple(code.parameters), tuple(lines), tuple(formula))
