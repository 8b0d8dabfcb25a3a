"""The causes of a batch that differs, found by following each argument of the first model back along the tape.

    t = torch.randint(0, 200, (8,)).to(torch.int8)     only bad executes _to_copy with dtype=int8 (train.py:31)
    mask = torch.triu(ones, diagonal=0)                triu (train.py:32) receives diagonal=0 in bad, 1 in cpu
    model(x, t, mask)

Several causes may precede an argument. A minimal set of them is kept: without these, side b computes side a's argument
bit for bit. The proof goes both ways: swapped into side a, the causes change the argument; swapped out of side b, they
leave the argument as on side a. If no op of the step made a value, it comes from before the step or from outside of
torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ...records.results.culprit import Culprit, Proof, SwappedIn, SwappedOut
from ...tape.replaying.replay import is_same, set_apart
from ..align.storage_flow import SIDES, FlowValue, Side
from ..causes.batch_words import Begins, Labels, how_apart, what_it_does
from ..causes.examination import Examined
from ..causes.found_culprits import place_of
from ..causes.site_causes import Cause
from ..execute.hybrid import Hybrid, HybridExecution
from ..execute.tape_pair import TapePair

MOST_FOLLOWED = 8
"""The largest number of differing arguments that are followed. If more differ, they are assumed to share causes."""


@dataclass(frozen=True, slots=True)
class BatchCause:
    """A cause of the difference in some arguments of a batch; swapped out, it removes the difference.

    comes: True if the cause, swapped in, makes these arguments differ.
    text: the effect of the cause in words.
    op, source: the op that the cause concerns, and that op's line.
    """

    cause: Cause
    arguments: tuple[str, ...]
    comes: bool
    text: str
    op: str | None
    source: str | None


@dataclass(frozen=True, slots=True)
class FollowedBatch:
    """The causes of all arguments that differ, and a note on each argument whose cause was not found."""

    causes: Sequence[BatchCause]
    notes: Sequence[str]


def follow_batch(
    pair: TapePair,
    examined: Mapping[int, Examined],
    causes: Sequence[Cause],
    labels: Labels,
    own: Collection[str] = (),
    begins: Begins = "step",
) -> FollowedBatch:
    """Follow every differing argument of the batch to its causes, which are among `causes`.

    The training script computes the arguments in `own` itself. Their differences do not come from outside, so only ops
    of the step can be their causes.
    """
    by_side = {side: {argument.name: argument.value for argument in pair.flows[side].tape.batch} for side in SIDES}
    parts_by_cause: dict[int, list[tuple[str, Cause, bool]]] = {}
    notes = []
    differing = [
        name for name, value in by_side["a"].items() if name in by_side["b"] and not is_same(value, by_side["b"][name])
    ]
    for name in differing[:MOST_FOLLOWED]:
        left_value, right_value = by_side["a"][name], by_side["b"][name]
        blocks, inputs = _upstream(pair, name)
        parts = {number: _part(cause, blocks, () if name in own else inputs) for number, cause in enumerate(causes)}
        before = {number: part for number, part in parts.items() if part.sites or part.inputs}
        fewest = _fewest(pair, name, left_value, before, max(blocks, default=-1))
        if fewest:
            put_in = _argument_in(pair, name, "a", [before[number] for number in fewest], max(blocks, default=-1))
            comes = put_in is not None and not is_same(put_in, left_value)
            for number in fewest:
                parts_by_cause.setdefault(number, []).append((name, before[number], comes))
        elif name not in own:
            difference = how_apart(left_value, right_value)
            notes.append(f"{name} differs ({difference}); the cause was not found")
    followed = []
    for number, followed_parts in parts_by_cause.items():
        names = tuple(name for name, _, _ in followed_parts)
        # All parts of the cause that are upstream of any of these arguments
        part = replace(
            causes[number],
            sites=tuple(dict.fromkeys(site for _, cause_part, _ in followed_parts for site in cause_part.sites)),
            inputs=tuple(dict.fromkeys(value for _, cause_part, _ in followed_parts for value in cause_part.inputs)),
        )
        comes = all(differs for _, _, differs in followed_parts)
        followed.append(BatchCause(causes[number], names, comes, *what_it_does(pair, examined, part, labels, begins)))
    return FollowedBatch(followed, notes)


def _fewest(pair: TapePair, name: str, left_value: torch.Tensor, parts: Mapping[int, Cause], last: int) -> list[int]:
    """Return a minimal set of these parts of causes without which side b computes `left_value` for this argument.

    The list is empty if side b does not compute `left_value` even without all parts.
    """

    def reproduces(tried: Sequence[int]) -> bool:
        value = _argument_in(pair, name, "b", [parts[number] for number in tried], last)
        return value is not None and is_same(value, left_value)

    tried = list(parts)
    if not tried or not reproduces(tried):
        return []
    for number in parts:
        without = [other_number for other_number in tried if other_number != number]
        if reproduces(without):
            tried = without
    return tried


def _upstream(pair: TapePair, name: str) -> tuple[set[int], set[tuple[Side, FlowValue]]]:
    """Return the blocks that an argument depends on, on either side, and the inputs of the step that it depends on."""
    pending: list[tuple[Side, FlowValue]] = [(side, pair.flows[side].batch[name].value) for side in SIDES]
    blocks, inputs = set[int](), set[tuple[Side, FlowValue]]()
    while pending:
        side, value = pending.pop()
        number = pair.maker(side, value)
        if number < 0:
            inputs.add((side, value))
        elif number not in blocks:
            blocks.add(number)
            for block_side in SIDES:
                pending += [(block_side, use.value) for node in pair.nodes(number, block_side) for use in node.reads]
    return blocks, inputs


def _part(cause: Cause, blocks: Collection[int], inputs: Collection[tuple[Side, FlowValue]]) -> Cause:
    """Return the part of a cause that is within these blocks and inputs."""
    sites = [replace(site, blocks=site.blocks.intersection(blocks)) for site in cause.sites]
    return replace(
        cause,
        sites=tuple(site for site in sites if site.blocks),
        inputs=tuple(value for value in cause.inputs if ("a", value) in inputs),
    )


def _argument_in(pair: TapePair, name: str, base: Side, parts: Sequence[Cause], last: int) -> torch.Tensor | None:
    """Compute the argument in a hybrid: side `base` with these parts of causes from the other side.

    The hybrid is executed up to the block `last`. Return None if that fails.
    """
    blocks = frozenset(block for part in parts for block in part.blocks)
    hybrid = Hybrid(base, blocks, frozenset(value for part in parts for value in part.inputs))
    try:
        with set_apart(pair.devices()):
            execution = HybridExecution(pair, hybrid)
            for number in range(last + 1):
                execution.run(number)
            return execution.argument(name)
    except Exception:  # noqa: BLE001, an op may raise anything on values other than its recorded ones
        return None


# The culprits of a step, those of its batch first


def with_batch(
    pair: TapePair, examined: Mapping[int, Examined], culprits: Sequence[Culprit], followed: FollowedBatch, a: str
) -> list[Culprit]:
    """Return the culprits of a step, preceded by the causes of its batch's difference.

    The batch itself proves these causes. `a` is the reference's name.
    """
    rest, first = list(culprits), list[Culprit]()
    for entry in followed.causes:
        place = place_of(pair, examined, entry.cause)
        culprit = next(
            (
                candidate
                for candidate in rest
                if (candidate.kind, candidate.lead, candidate.reasons) == (place.kind, place.lead, entry.cause.reasons)
            ),
            None,
        )
        if culprit is not None:
            rest.remove(culprit)
        names = " and ".join(entry.arguments)
        proof = Proof(
            SwappedIn(entry.comes),
            SwappedOut(True),
            why=f"without it, {names} would equal {a}'s, bit for bit",
        )
        first.append(
            replace(
                culprit or place,
                status="culprit" if entry.comes else "suspect",
                op=entry.op,
                source=entry.source,
                ops={side: entry.cause.ops[side] for side in SIDES},
                reasons=entry.cause.reasons,
                sites=len(entry.cause.sites),
                significance="beyond-rounding",
                local_significance="different-setup",
                local_rule="batch",
                proof=proof,
                text=entry.text,
                batch=entry.arguments,
            )
        )
    return [*first, *rest]
