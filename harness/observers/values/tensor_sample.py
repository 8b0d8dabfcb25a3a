"""The sample of a training's tensors that is recorded where recording all of them costs too much."""

from __future__ import annotations

from collections.abc import Sequence

from ...script.named_tensors import NamedTensor

SAMPLE_BYTES = 1 << 24
"""The most bytes of a sample, except for a single tensor that is larger."""

SAMPLE_TENSORS = 256
"""The most tensors of a sample."""


def sample_of(named: Sequence[NamedTensor]) -> list[NamedTensor]:
    """Return the smallest parameter of each module, in the order of `named`.

    Of several equally small ones it is the first. If a model has more modules than the sample has room for, the
    sample has those of evenly spaced modules; of these, the smallest ones that fit. The same model has the same sample
    in each run.
    """
    smallest: dict[str, NamedTensor] = {}
    for entry in named:
        module = entry.name.rpartition(".")[0]
        if entry.kind == "parameter" and (
            module not in smallest or entry.tensor.nbytes < smallest[module].tensor.nbytes
        ):
            smallest[module] = entry
    candidates = list(smallest.values())
    candidates = candidates[:: -(-len(candidates) // SAMPLE_TENSORS) or 1]
    room, chosen = SAMPLE_BYTES, set[str]()
    for entry in sorted(candidates, key=lambda entry: entry.tensor.nbytes):
        if entry.tensor.nbytes > room and chosen:
            break
        chosen.add(entry.name)
        room -= entry.tensor.nbytes
    return [entry for entry in candidates if entry.name in chosen]
