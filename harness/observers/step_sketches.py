"""The sketches of a step's tensors in the journal, for runs that have sharded tensors or ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from ..records import frames
from ..records.sketch_record import ABSENT_SKETCH, NOTHING, pack_sketch
from ..tape.journal_writing import EventLog, FrameFile
from ..tape.shards import is_sharded, shard_of, some_are_sharded
from .ended_step import EndedStep
from .sketch import Sketcher


class SketchFile:
    """Writes a frame a step: a sketch of every tensor of the step's table, then of every parameter's
    gradient.

    What a rank writes of a sharded tensor is what it adds to the sketch of the whole, so the ranks' records
    add up to that; a copy that another rank has as well is written as zeros.
    """

    def __init__(self, folder: Path, log: EventLog, *, asked: bool) -> None:
        self._file = FrameFile(folder / frames.SKETCHES)
        self._log = log
        self._asked = asked
        self._sketcher: Sketcher | None = None
        self._told: set[str] = set()

    def write(self, ended: EndedStep, read: Sequence[torch.Tensor]) -> None:
        """`read` are the values of `ended.state` on this rank. Raises OSError (disk full)."""
        tensors = [named.tensor for named in ended.table.tensors]
        if not self._asked and not some_are_sharded(tensors):
            return
        self._sketcher = self._sketcher or Sketcher()
        self._note_gradients(ended)
        values = iter(read)
        payload = [self._record(one, next(values)) for one in tensors]
        payload += [ABSENT_SKETCH if one is None else self._record(one, next(values)) for one in ended.gradients]
        self._file.frame(ended.table.number, ended.number, payload, sum(len(part) for part in payload))

    def _record(self, tensor: torch.Tensor, local: torch.Tensor) -> bytes:
        assert self._sketcher is not None
        shard = shard_of(tensor)
        if shard is None:
            sketch = self._sketcher.sketch(local)
        elif shard.offset is None:
            return ABSENT_SKETCH
        elif not shard.adds:
            sketch = NOTHING
        else:
            sketch = self._sketcher.sketch(local, shard.whole, shard.offset)
        return ABSENT_SKETCH if sketch is None else pack_sketch(sketch)

    def _note_gradients(self, ended: EndedStep) -> None:
        """Say of which gradients the parts are not those of their parameters: their digests do not add up
        alike."""
        for name, parameter, gradient in _parameters(ended):
            if name not in self._told and is_sharded(parameter):
                here, there = shard_of(parameter), None if gradient is None else shard_of(gradient)
                if there is not None and there != here:
                    self._told.add(name)
                    self._log.write("gradient-shard", tensor=name, shard=asdict(there))


def _parameters(ended: EndedStep) -> Iterator[tuple[str, torch.Tensor, torch.Tensor | None]]:
    named = (one for one in ended.table.tensors if one.kind == "parameter")
    for one, gradient in zip(named, ended.gradients, strict=True):
        yield one.name, one.tensor, gradient
