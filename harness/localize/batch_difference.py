"""What makes the batch of a step another one: each argument that the first model is called with, followed up the tape.

    t = torch.randint(0, 200, (8,)).to(torch.int8)     only bad executes _to_copy with dtype=int8 (train.py:31)
    mask = torch.triu(ones, diagonal=0)                triu (train.py:32) is given diagonal=0 in bad, 1 in cpu
    model(x, t, mask)

Of all that differs before an argument the fewest causes are kept with which side b gives side a's argument, bit for
bit. That is their proof: in side a they make the argument another one, in side b without them it is side a's. What no
op of the step has made came from before it, or from outside of torch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from ..records.culprit import Culprit, Proof, SwappedIn, SwappedOut
from ..tape.replay import is_same, set_apart
from .batch_words import Begins, Labels, how_apart, what_it_does
from .examination import Examined
from .hybrid import Mixture, MixtureExecution, TapePair
from .storage_flow import SIDES, FlowValue, Side
from .swap_sites import Cause

MOST_FOLLOWED = 8
"""So many values that differ are followed: more of them have causes in common."""


@dataclass(frozen=True, slots=True)
class BatchCause:
    """A cause of a batch that differs, in these arguments: `text` says what it does there, with the op `op` in the line
    `source`. Swapped out it takes their difference away, and swapped in it `comes`."""

    cause: Cause
    arguments: tuple[str, ...]
    comes: bool
    text: str
    op: str | None
    source: str | None


@dataclass(frozen=True, slots=True)
class FollowedBatch:
    """The causes of all arguments that differ, and what is to be said of those whose cause was not found."""

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
    """Follow every argument of the batch that differs to its causes, which are among these. What the training makes
    itself, its `own`, is no data that came in otherwise: of that only ops of the step are causes.
    """
    given = {side: {one.name: one.value for one in pair.flows[side].tape.given} for side in SIDES}
    found: dict[int, list[tuple[str, Cause, bool]]] = {}
    notes = []
    differing = [name for name, one in given["a"].items() if name in given["b"] and not is_same(one, given["b"][name])]
    for name in differing[:MOST_FOLLOWED]:
        mine, theirs = given["a"][name], given["b"][name]
        blocks, inputs = _upstream(pair, name)
        parts = {number: _part(one, blocks, () if name in own else inputs) for number, one in enumerate(causes)}
        before = {number: part for number, part in parts.items() if part.sites or part.inputs}
        fewest = _fewest(pair, name, mine, before, max(blocks, default=-1))
        if fewest:
            put_in = _given(pair, name, "a", [before[number] for number in fewest], max(blocks, default=-1))
            comes = put_in is not None and not is_same(put_in, mine)
            for number in fewest:
                found.setdefault(number, []).append((name, before[number], comes))
        elif name not in own:
            what = how_apart(mine, theirs)
            notes.append(f"{name} differs ({what}); what makes it differ was not found")
    followed = []
    for number, known in found.items():
        names = tuple(name for name, _, _ in known)
        # All of it that lies before any of them
        part = replace(
            causes[number],
            sites=tuple(dict.fromkeys(site for _, one, _ in known for site in one.sites)),
            inputs=tuple(dict.fromkeys(value for _, one, _ in known for value in one.inputs)),
        )
        comes = all(one for _, _, one in known)
        followed.append(BatchCause(causes[number], names, comes, *what_it_does(pair, examined, part, labels, begins)))
    return FollowedBatch(followed, notes)


def _fewest(pair: TapePair, name: str, mine: torch.Tensor, parts: Mapping[int, Cause], last: int) -> list[int]:
    """The fewest of these parts of causes without which side b gives this argument; none where it never does."""

    def gives(tried: Sequence[int]) -> bool:
        one = _given(pair, name, "b", [parts[number] for number in tried], last)
        return one is not None and is_same(one, mine)

    tried = list(parts)
    if not tried or not gives(tried):
        return []
    for number in parts:
        without = [one for one in tried if one != number]
        if gives(without):
            tried = without
    return tried


def _upstream(pair: TapePair, name: str) -> tuple[set[int], set[tuple[Side, FlowValue]]]:
    """The blocks that an argument is made by on either side, and the inputs of the step that it is made of."""
    waiting: list[tuple[Side, FlowValue]] = [(side, pair.flows[side].given[name].value) for side in SIDES]
    blocks, inputs = set[int](), set[tuple[Side, FlowValue]]()
    while waiting:
        side, value = waiting.pop()
        number = pair.maker(side, value)
        if number < 0:
            inputs.add((side, value))
        elif number not in blocks:
            blocks.add(number)
            for one in SIDES:
                nodes = (pair.flows[one].nodes[node] for node in pair.blocks[number].of(one))
                waiting += [(one, use.value) for node in nodes for use in node.reads]
    return blocks, inputs


def _part(cause: Cause, blocks: Collection[int], inputs: Collection[tuple[Side, FlowValue]]) -> Cause:
    """What of a cause lies upstream."""
    sites = [replace(site, blocks=site.blocks.intersection(blocks)) for site in cause.sites]
    return replace(
        cause,
        sites=tuple(site for site in sites if site.blocks),
        inputs=tuple(value for value in cause.inputs if ("a", value) in inputs),
    )


def _given(pair: TapePair, name: str, base: Side, parts: Sequence[Cause], last: int) -> torch.Tensor | None:
    """The argument in a hybrid: side `base`, but with these parts of causes from the other side, executed up to the
    block `last`. None where it cannot be executed."""
    blocks = frozenset(block for part in parts for block in part.blocks)
    mixture = Mixture(base, blocks, frozenset(value for part in parts for value in part.inputs))
    try:
        with set_apart(pair.devices()):
            execution = MixtureExecution(pair, mixture)
            for number in range(last + 1):
                execution.run(number)
            return execution.given(name)
    except Exception:  # noqa: BLE001, an op may raise anything on values that are not its own
        return None


# The culprits of a step, those of its batch first.


def with_batch(
    culprits: Sequence[Culprit], places: Sequence[Culprit], followed: FollowedBatch, a: str
) -> list[Culprit]:
    """The culprits of a step with what makes its batch another one, which is proven by the batch itself. `places` are
    those causes as culprits of which nothing else is known."""
    rest, first = list(culprits), list[Culprit]()
    for one, place in zip(followed.causes, places, strict=True):
        known = next(
            (c for c in rest if (c.kind, c.lead, c.reasons) == (place.kind, place.lead, one.cause.reasons)), None
        )
        if known is not None:
            rest.remove(known)
        names = " and ".join(one.arguments)
        proof = Proof(
            SwappedIn(one.comes),
            SwappedOut(True),
            why=f"without it {names} would be {'that' if len(one.arguments) == 1 else 'those'} of {a}, bit for bit",
        )
        first.append(
            replace(
                known or place,
                status="culprit" if one.comes else "suspect",
                op=one.op,
                source=one.source,
                ops={side: one.cause.ops[side] for side in SIDES},
                reasons=one.cause.reasons,
                sites=len(one.cause.sites),
                significance="beyond-rounding",
                local_significance="different-setup",
                local_rule="batch",
                proof=proof,
                text=one.text,
                batch=one.arguments,
            )
        )
    return [*first, *rest]
