"""Blocks as a standalone script shows them: both sides' calls, what they take, and what they give on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ..tape.ensemble import in_words
from ..tape.in_double import exact_values
from ..tape.replay import set_apart
from ..tape.tape import Tape
from .examination import Examined, examine
from .hybrid import Execution, Mixture, Pair
from .local_error import results_of
from .step_memory import Memory
from .storage_flow import SIDES, Side, Use, Value
from .suspects import Suspect


class NotShown(Exception):
    """Why a block cannot be shown by a script of its own, in words."""


@dataclass(frozen=True, slots=True, eq=False)
class ShownBlock:
    """A block on side b's very values. `results` are what each side gives there, in the order of the slices' outputs.

    `reference` is the side whose calls give `exact` in double precision, None where neither side's can be executed so;
    `live` says that they need nothing but wider inputs for that. `ulps` are each side's largest errors against it.
    """

    slices: Mapping[Side, Tape]
    results: Mapping[Side, Sequence[torch.Tensor]]
    reference: Side | None
    exact: Sequence[torch.Tensor]
    live: bool
    ulps: Mapping[Side, float]


def show_blocks(pair: Pair, found: Mapping[int, Suspect]) -> dict[int, ShownBlock | NotShown]:
    """Walk through side b once more and keep what these blocks take and give, or why that cannot be had."""
    examined = examine(pair, found, keep=found.keys())
    shown: dict[int, ShownBlock | NotShown] = {}
    with set_apart(pair.devices()):
        execution = Execution(pair, Mixture("b"))
        for number in range(len(pair.blocks)):
            before = execution.memory.fork() if number in found else None
            execution.run_as("b", number, execution.memory)
            if before is not None:
                shown[number] = _shown(execution, number, examined[number], before)
            execution.memory.block_ended(number)
    return shown


def _shown(execution: Execution, number: int, examined: Examined, before: Memory) -> ShownBlock | NotShown:
    slices = examined.slices
    if slices is None or any(side not in slices for side in SIDES):
        return NotShown(examined.why or "its inputs cannot be told apart from those of its neighbours")
    ours = before.fork()
    memories: dict[Side, Memory] = {"a": ours, "b": execution.memory}
    try:
        execution.run_as("a", number, ours)
        results = {
            side: _outputs(execution.pair, number, side, slices[side], memories[side]) for side in SIDES
        }
    except Exception as error:  # noqa: BLE001, an op may raise anything on values that are not its own
        return NotShown(in_words(error))
    reference, exact, live = _exact(slices)
    ulps = {side: error.ulp for side, error in (examined.errors or {}).items()} if reference else {}
    return ShownBlock(slices, results, reference, exact, live, ulps)


def _outputs(pair: Pair, number: int, side: Side, block: Tape, memory: Memory) -> list[torch.Tensor]:
    """What the side's outputs are when the block has ended."""
    flow, home = pair.flows[side], pair.home[side]
    found = []
    for one in block.watched:
        slot = one.view.slot
        versions = [
            value.version
            for value, node in flow.makers.items()
            if value.slot == slot and home[node] <= number
        ]
        use = Use(one.view, Value(slot, max(versions, default=0)))
        found.append(memory.tensor(side, use).clone())
    return found


def _exact(slices: Mapping[Side, Tape]) -> tuple[Side | None, Sequence[torch.Tensor], bool]:
    """The first side whose calls can be executed in double, what they give, and whether plain calls give it."""
    for side in SIDES:
        found = _in_double(slices[side]) if slices[side].calls else None
        if found is not None:
            return side, *found
    return None, (), False


def _in_double(block: Tape) -> tuple[Sequence[torch.Tensor], bool] | None:
    try:
        values, not_exact = exact_values(block)
    except Exception:  # noqa: BLE001, an op may raise anything on doubles
        return None
    drawn = any(call.draw is not None for call in block.calls)
    return results_of(values), not drawn and not not_exact
