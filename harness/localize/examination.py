"""Suspect blocks put to the test: each side's version executed on the other mode's very inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch

from ..tape.ensemble import in_words
from ..tape.replay import is_same, set_apart
from ..tape.tape import Tape
from .hybrid import Execution, Mixture, Pair
from .local_error import ExactBlock, LocalError
from .step_memory import Memory, Unbound
from .storage_flow import SIDES, Side, Use, Value
from .suspects import Suspect
from .tape_slices import slice_of


@dataclass(frozen=True, slots=True)
class Examined:
    """What the test of a block gave. `differs` is None where the block alone cannot be tested: it shares what it makes
    with others, or fails on the other side's values, as `why` says. `errors` are each side's, against double precision.
    `slices` hold each side's calls and inputs, where they were asked for."""

    suspect: Suspect
    differs: bool | None
    why: str = ""
    errors: Mapping[Side, LocalError] | None = None
    largest: float = 0.0
    slices: Mapping[Side, Tape] | None = None


def examine(
    pair: Pair, found: Mapping[int, Suspect], *, keep: Collection[int] = (), errors: bool = True
) -> dict[int, Examined]:
    """Walk through side b and execute side a's version of every suspect block on b's values.

    `keep` are the blocks whose slices are kept; without `errors` no double precision is used.
    """
    results: dict[int, Examined] = {}
    with set_apart(pair.devices()):
        execution = Execution(pair, Mixture("b"))
        for number in range(len(pair.blocks)):
            if number not in found:
                execution.run(number)
                continue
            before = execution.memory.fork()
            execution.run_as("b", number, execution.memory)
            results[number] = _examined(execution, found[number], before, kept=number in keep, errors=errors)
            execution.memory.block_ended(number)
    return results


def _examined(
    execution: Execution, suspect: Suspect, before: Memory, *, kept: bool, errors: bool
) -> Examined:
    pair, number = execution.pair, suspect.block
    compared = _compared(pair, number)
    if not compared:
        return Examined(suspect, None, "what it makes has no counterpart")
    ours = before.fork()
    try:
        execution.run_as("a", number, ours)
        results = {
            "a": [ours.tensor("a", mine).clone() for mine, _ in compared],
            "b": [execution.memory.tensor("b", theirs).clone() for _, theirs in compared],
        }
    except Exception as error:  # noqa: BLE001, an op may raise anything on values that are not its own
        return Examined(suspect, None, in_words(error))
    differs = not all(is_same(a, b.to(a.dtype)) for a, b in zip(results["a"], results["b"], strict=True))
    if not differs:
        return Examined(suspect, _shares_more(pair, number, compared) or False)
    slices = _slices(execution, number, before, compared)
    found = _errors(slices, results) if errors and slices else None
    largest = max(_relative(a, b) for a, b in zip(results["a"], results["b"], strict=True))
    return Examined(suspect, True, errors=found, largest=largest, slices=slices if kept else None)


def _shares_more(pair: Pair, number: int, compared: list[tuple[Use, Use]]) -> bool | None:
    """None where other blocks read what one side alone makes here, and that is therefore not compared."""
    for side in SIDES:
        flow = pair.flows[side]
        known = {(mine if side == "a" else theirs).value for mine, theirs in compared}
        made = {use.value for node in pair.blocks[number].of(side) for use in flow.nodes[node].made}
        if any(pair.readers[side].get(value, set()) - {number} for value in made - known):
            return None
    return False


def _compared(pair: Pair, number: int) -> list[tuple[Use, Use]]:
    """What the block leaves behind on both sides: by the links of what either side makes in it."""
    found: dict[tuple[Value, Value], tuple[Use, Use]] = {}
    for side in SIDES:
        flow = pair.flows[side]
        for node in pair.blocks[number].of(side):
            for use in flow.nodes[node].made:
                link = pair.links.of[side].get(use.value)
                if link is None or not pair.readers[side].get(use.value, set()) - {number}:
                    continue
                mine, theirs = Use(link.mine, use.value), Use(link.theirs, link.value)
                a, b = (mine, theirs) if side == "a" else (theirs, mine)
                if _last_there(pair, "a", number, a) and _last_there(pair, "b", number, b):
                    found[a.value, b.value] = (a, b)
    return list(found.values())


def _last_there(pair: Pair, side: Side, number: int, use: Use) -> bool:
    """Whether the value exists when the block has ended."""
    return pair.maker(side, use.value) <= number


def _slices(
    execution: Execution, number: int, before: Memory, compared: list[tuple[Use, Use]]
) -> dict[Side, Tape]:
    pair, found = execution.pair, dict[Side, Tape]()
    block = pair.blocks[number]
    for place, side in enumerate(SIDES):
        outputs = [uses[place] for uses in compared]
        nodes = block.of(side)
        instead = execution.instead(side, nodes[0], number) if block.is_pair else {}
        with suppress(Unbound):
            found[side] = slice_of(pair.flows[side], side, nodes, before.fork(), outputs, instead)
    return found


def _errors(
    slices: Mapping[Side, Tape], results: Mapping[str, list[torch.Tensor]]
) -> dict[Side, LocalError] | None:
    """Each side's error against side a's calls in double; against its own where only it can be executed so."""
    for side in SIDES:
        if side not in slices or not slices[side].calls:
            continue
        exact = _exact(slices[side], [slices[one] for one in SIDES if one in slices])
        if exact is not None:
            found = {one: exact.error(results[one]) for one in SIDES}
            return {one: error for one, error in found.items() if error is not None} or None
    return None


def _exact(block: Tape, versions: Sequence[Tape]) -> ExactBlock | None:
    """None for a block that cannot be executed in double."""
    try:
        return ExactBlock(block, versions)
    except Exception:  # noqa: BLE001, an op may raise anything on doubles
        return None


def _relative(a: torch.Tensor, b: torch.Tensor) -> float:
    """||b - a|| / ||a||."""
    if not a.is_floating_point() or a.shape != b.shape:
        return 1.0
    size = float(a.double().norm())
    apart = float((b.double() - a.double()).norm())
    return apart / size if size else (1.0 if apart else 0.0)
