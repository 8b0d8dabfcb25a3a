"""Writes the steps that have ended: their frames, and their lines in the journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from ..hooks.mode_protocol import Moment
from ..hooks.observer import Observer, RecordingSurroundings
from ..records import frames
from ..records.digest_record import ABSENT
from ..script.named_tensors import NamedTensor
from ..tape.journal_writing import FrameFile, loss_to_json
from .ended_step import EndedStep, Said, Table, scalar
from .logged import described
from .step_sketches import SketchFile
from .value_files import ValueFiles


class StepWriter(Observer):
    """Takes each step when it ends, and writes it once its values can be read."""

    def __init__(self, around: RecordingSurroundings) -> None:
        config = around.config
        folder = Path(config.journal)
        self._around = around
        self._config = config
        self._mode = around.mode
        self._log = around.log
        self._digester = around.digester
        self._digests = FrameFile(folder / frames.DIGESTS)
        self._values = ValueFiles(folder, config.keep_params, config.value_budget, around.notice)
        self._sketches = SketchFile(folder, around.log, asked=config.sketches)
        self._tensors: Sequence[NamedTensor] | None = None
        self._table: Table | None = None
        self._described: list[dict[str, Any]] | None = None
        self._ended: dict[int, EndedStep] = {}
        self._last: tuple[Table, int, bytes] | None = None
        self._under_way = 0
        self._finite = True
        self._stopped = False

    def forget(self) -> None:
        self._stopped = True
        self._ended.clear()

    def closing(self, moment: Moment, step: int) -> None:
        """Keep what the step had: the script may have let go of it when its values can be read."""
        self._under_way = step + (moment == "step")
        if moment != "step" or self._stopped:
            return
        self.doing = "ending a step"
        table = self._table_of(self._around.table())
        taken = self._around.gradients()
        gradients = tuple(
            taken.get(named.name) if named.tensor.grad is None else named.tensor.grad
            for named in table.tensors
            if named.kind == "parameter"
        )
        self._ended[step] = EndedStep(step, self._around.losses(), gradients, table, self._around.said())

    def settled(self, moment: Moment, step: int) -> None:
        ended = self._ended.pop(step, None) if moment == "step" else None
        if ended is not None:
            self.doing = "recording a step"
            self.write(ended)

    def close(self) -> None:
        self.doing = "closing the journal"
        if not self._stopped:
            self.write_said(self._around.said(), self._under_way)
        self.write_last_values()

    def _table_of(self, tensors: Sequence[NamedTensor]) -> Table:
        """The table of these tensors, written down where it is new.

        Other tensors by the same names, the arguments of a function, need no new one.
        """
        if self._table is not None and tensors is self._tensors:
            return self._table
        described_ = [named.describe() for named in tensors]
        number = 0 if self._table is None else self._table.number
        if described_ != self._described:
            number = 0 if self._table is None else number + 1
            self._described = described_
            self._log.write("tensors", table=number, tensors=described_)
        self._tensors, self._table = tensors, Table(number, tuple(tensors))
        return self._table

    def write(self, ended: EndedStep) -> None:
        """Write a step, with what the other observers say of it."""
        seconds = self._around.seconds()
        with_state = self._config.records("params") and ended.number in self._config.steps
        # In one piece: the lazy mode may have to execute a graph for it.
        said = [tensor for one in ended.said for tensor in one.tensors]
        values = iter(self._mode.read([*ended.losses, *said, *(ended.state if with_state else ())]))
        fields: dict[str, Any] = {"losses": [loss_to_json(scalar(next(values))) for _ in ended.losses]}
        fields |= self._written(ended.said, values, ended.number)
        self._note_nonfinite(ended.number, fields["losses"])
        if with_state:
            self._write_state(ended, list(values))
        others = self._around.fields(ended.number)
        if not self._stopped:
            self._log.write("step", step=ended.number, **fields, seconds=seconds, **others)

    def write_said(self, said: Sequence[Said], step: int) -> None:
        """Write what was said of the last step when it had ended; `step`, which has not ended, is none."""
        read = self._mode.read([tensor for one in said for tensor in one.tensors])
        self._written(said, iter(read), step)

    def write_last_values(self) -> None:
        """Keep the last step's values, provided that nothing changed them after it."""
        if self._last is None:
            return
        table, step, digests = self._last
        read = self._mode.read([named.tensor for named in table.tensors])
        if self._digester.digest(read) == digests:
            self._values.write_last(table.number, step, read)

    def _written(self, said: Sequence[Said], read: Iterator[torch.Tensor], step: int) -> dict[str, Any]:
        """Write down what the script said of steps that are written already; gives what it said of `step`."""
        told = {one.step: described(one, read) for one in said}
        for number in (number for number in told if number < step):
            self._log.write("logged", step=number, **told[number])
            self._note_nonfinite(number, told[number].get("losses", ()))
        return told.get(step, {})

    def _note_nonfinite(self, step: int, losses: Sequence[float | str]) -> None:
        if self._finite and any(isinstance(loss, str) for loss in losses):
            self._finite = False
            self._around.nonfinite(step)

    def _write_state(self, ended: EndedStep, read: list[torch.Tensor]) -> None:
        number, step = ended.table.number, ended.number
        count, size = len(ended.table.tensors), len(ABSENT)
        digests = self._digester.digest(read)
        values, gradients = digests[: count * size], iter(_chunks(digests[count * size :], size))
        self._last = (ended.table, step, values)
        payload = [values, *(ABSENT if one is None else next(gradients) for one in ended.gradients)]
        self._digests.frame(number, step, payload, sum(len(part) for part in payload))
        self._values.keep(number, step, read[:count])
        self._sketches.write(ended, read)


def _chunks(data: bytes, size: int) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))
