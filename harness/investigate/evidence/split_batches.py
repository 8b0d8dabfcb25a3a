"""A pair of which one side splits the other side's batches, according to the batches that its runs kept."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from ...drift.setup.split_batch import Side, SplitBatch, split_batch
from ...errors import JournalError
from ...records.run.step_files import STATES, inputs_file
from ...runs.mapped_tensors import TensorFile, read_tensor_file
from .pair_evidence import PairEvidence

MOST_CHECKED = 16
"""The largest number of steps whose batches are compared row by row."""


def split_of(evidence: PairEvidence) -> SplitBatch | None:
    """Return how one side of a pair splits the other side's batches; None if none does."""

    def kept(side: Side) -> Mapping[int, TensorFile]:
        own = [run for run in (evidence.b_again, *evidence.started) if run is not None]
        inputs: dict[int, TensorFile] = {}
        for run in evidence.kept if side == "a" else own:
            states = run.path / STATES
            for step in (int(path.stem.partition("-")[2]) for path in sorted(states.glob("inputs-*.safetensors"))):
                if len(inputs) < MOST_CHECKED and step not in inputs:
                    with suppress(JournalError):
                        inputs[step] = read_tensor_file(inputs_file(states, step))
        return inputs

    return split_batch(evidence.a, evidence.b, kept)
