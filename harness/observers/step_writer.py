"""The frames and events of the steps that have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..hooks.mode_protocol import Mode
from ..records import frames
from ..records.digest_record import ABSENT
from ..records.run_config import RunConfig
from ..script.named_tensors import NamedTensor
from ..tape.journal_writing import EventLog, FrameFile, loss_to_json
from .digest import Digester
from .ended_step import EndedStep, Said, Table, scalar
from .logged import described
from .step_sketches import SketchFile
from .value_files import ValueFiles


class StepWriter:
    """Writes each ended step once its values can be read. `nonfinite_from` is the first step whose loss is not finite."""

    def __init__(
        self, config: RunConfig, mode: Mode, log: EventLog, digester: Digester, notice: Callable[[str], None]
    ) -> None:
        folder = Path(config.journal)
        self.nonfinite_from: int | None = None
        self._config = config
        self._mode = mode
        self._log = log
        self._digester = digester
        self._digests = FrameFile(folder / frames.DIGESTS)
        self._values = ValueFiles(folder, config.keep_params, config.value_budget, notice)
        self._sketches = SketchFile(folder, log, asked=config.sketches)
        self._tables = 0
        self._described: list[dict[str, Any]] | None = None
        self._last: tuple[Table, int, bytes] | None = None

    def table(self, tensors: Sequence[NamedTensor]) -> Table:
        """The table of these tensors, written down where it is new.

        Other tensors by the same names, the arguments of a function, need no new one.
        """
        described_ = [named.describe() for named in tensors]
        if described_ != self._described:
            self._described = described_
            self._tables += 1
            self._log.write("tensors", table=self._tables - 1, tensors=described_)
        return Table(self._tables - 1, tuple(tensors))

    def write(self, ended: EndedStep, setup: Callable[[], Mapping[str, Any]], seconds: float) -> None:
        """Write a step; `setup` gives the fields of what it was given, `seconds` are those since the training began."""
        with_state = self._config.records("params") and ended.number in self._config.steps
        # In one piece: the lazy mode may have to execute a graph for it.
        said = [tensor for one in ended.said for tensor in one.tensors]
        values = iter(self._mode.read([*ended.losses, *said, *(ended.state if with_state else ())]))
        fields: dict[str, Any] = {"losses": [loss_to_json(scalar(next(values))) for _ in ended.losses]}
        fields |= self._written(ended.said, values, ended.number)
        self._note_nonfinite(ended.number, fields["losses"])
        if with_state:
            self._write_state(ended, list(values))
        self._log.write("step", step=ended.number, **fields, seconds=seconds, **setup())

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
        if self.nonfinite_from is None and any(isinstance(loss, str) for loss in losses):
            self.nonfinite_from = step

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
