"""Writes completed steps: their frames, and their lines in the journal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ...hooks.mode_protocol import Moment
from ...hooks.observer import Observer, RecordingSurroundings
from ...records import frames
from ...records.values.digest_record import ABSENT, RECORD_BYTES
from ...records.values.sketch_record import ABSENT_SKETCH, NOTHING, pack_sketch
from ...script.named_tensors import NamedTensor
from ...tape.files.journal_writing import EventLog, FrameFile, loss_to_json
from ...tape.shards import is_sharded, shard_of, some_are_sharded
from .digest import hash_text
from .ended_step import EndedStep, LoggedStep, Table, described, scalar
from .fetched_values import on_host
from .held_steps import HELD, DigestedStep, HeldSteps
from .sketch import Sketcher
from .tensor_sample import sample_of
from .value_files import ValueFiles

RETRIED_AFTER = 100
"""The number of steps without details after the disk had no room for those of a step."""


class StepWriter(Observer):
    """Collects each step when it ends, and writes it once its values can be read."""

    def __init__(self, around: RecordingSurroundings) -> None:
        config = around.config
        folder = Path(config.journal)
        self._around = around
        self._config = config
        self._mode = around.mode
        self._log = around.log
        self._digester = around.digester
        self._digests = FrameFile(folder / frames.DIGESTS)
        earlier = [Path(run) / folder.name for run in config.earlier]
        self._values = ValueFiles(folder, config.keep_params, config.value_budget, around.notice, earlier)
        self._sketches = SketchFile(folder, around.log, requested=config.sketches)
        self._held = HeldSteps(self._digests, around.write) if config.steps.spikes else None
        self._share = around.share
        self._tensors: Sequence[NamedTensor] | None = None
        self._sampled_from: Sequence[NamedTensor] | None = None
        self._sample: Sequence[NamedTensor] = ()
        self._table: Table | None = None
        self._described: list[dict[str, Any]] | None = None
        self._ended: dict[int, EndedStep] = {}
        self._last: tuple[Table, int, bytes] | None = None
        self._under_way = 0
        self._full_until = 0
        self._finite = True
        self._stopped = False

    def forget(self) -> None:
        self._stopped = True
        self._ended.clear()
        if self._held is not None:
            self._held.forget()

    def script_ended(self, failure: str) -> None:
        if self._held is not None:
            self.doing = "writing the steps before a failure"
            self._held.script_ended(failure)

    def closing(self, moment: Moment, step: int) -> None:
        """Keep the step's tensors: the script may have released them by the time their values can be read."""
        self._under_way = step + (moment == "step")
        if moment != "step" or self._stopped:
            return
        self.doing = "ending a step"
        with self._share.measured():
            self._keep(step)

    def _keep(self, step: int) -> None:
        tensors, table = self._recorded(), self._table
        if table is None or tensors is not self._tensors:
            # Only a change in the descriptions needs a new table. New tensors with the same descriptions, such as the
            # arguments of a function, need none.
            described_ = [named.describe() for named in tensors]
            number = 0 if table is None else table.number
            if described_ != self._described:
                number = 0 if table is None else number + 1
                self._described = described_
                self._log.write("tensors", table=number, tensors=described_)
            table = Table(number, tuple(tensors), tuple(named for named in tensors if named.kind == "parameter"))
            self._tensors, self._table = tensors, table
        other_gradients = self._around.gradients()
        gradients = tuple(
            [
                other_gradients.get(named.name) if (gradient := named.tensor.grad) is None else gradient
                for named in table.parameters
            ]
        )
        self._ended[step] = EndedStep(step, self._around.losses(), gradients, table, self._around.logged_values())

    def _recorded(self) -> Sequence[NamedTensor]:
        """Return the tensors that are recorded: the same list until they change."""
        tensors = self._around.table()
        if not self._config.sampled:
            return tensors
        if tensors is not self._sampled_from:
            self._sampled_from, self._sample = tensors, sample_of(tensors)
        return self._sample

    def settled(self, moment: Moment, step: int) -> None:
        ended = self._ended.pop(step, None) if moment == "step" else None
        if ended is not None:
            self.doing = "recording a step"
            with self._share.measured():
                self.write(ended)
            self._share.step_recorded(step, is_selected=self._is_selected(step))

    def close(self) -> None:
        self.doing = "closing the journal"
        if self._config.overhead is not None and not self._stopped:
            self._note_overhead(self._config.overhead)
        if not self._stopped:
            self.write_logged(self._around.logged_values(), self._under_way)
        self.write_last_values()

    def write(self, ended: EndedStep) -> None:
        """Write a step, with the fields that the other observers add."""
        seconds, number = self._around.seconds(), ended.number
        with_state = self._is_selected(number) and self._share.has_details(number) and number >= self._full_until
        is_scheduled = with_state and number in self._config.steps
        numbers = [*ended.losses, *(tensor for logged in ended.logged for tensor in logged.tensors)]
        # All values are taken at once: the lazy mode may have to execute a graph for them.
        placed = self._mode.in_place([*numbers, *ended.state] if with_state else numbers)
        state = placed[len(numbers) :]
        # The digests are begun before the first number is read: the device computes them before the host waits for it.
        digests_of_state = self._digester.launch(state)
        values = iter(on_host(placed[: len(numbers)]))
        fields: dict[str, Any] = {"losses": [loss_to_json(scalar(next(values))) for _ in ended.losses]}
        fields |= self._write_logged(ended.logged, values, number)
        self._note_nonfinite(number, fields["losses"])
        other_fields = self._around.fields(number)
        if self._held is not None and self._held.judge(number, fields["losses"], other_fields.get("optimizer", 0)):
            self._share.insist(number + HELD)
            if not with_state and self._is_selected(number) and self._mode.capabilities.has_values:
                state, with_state = self._mode.in_place(ended.state), True
                digests_of_state = self._digester.launch(state)
        if with_state:
            table, digests = ended.table, digests_of_state()
            self._last = (table, number, digests[: len(table.tensors) * len(ABSENT)])
            payload = _payload(digests, ended)
            if is_scheduled:
                with self._room(number):
                    self._digests.frame(table.number, number, payload, sum(len(part) for part in payload))
            if self._held is not None:
                self._held.hold(DigestedStep(table, number, payload), is_written=is_scheduled)
        with self._room(number):
            if self._held is not None and not self._stopped:
                is_scheduled = (self._held.settle(number) and with_state) or is_scheduled
            if is_scheduled and number >= self._full_until:
                self._values.keep(ended.table.number, number, state[: len(ended.table.tensors)])
                self._sketches.write(ended, state)
        # The line is written last: a step counts as recorded once it has a line.
        if not self._stopped:
            self._log.write("step", step=number, **fields, seconds=seconds, **other_fields)

    @contextmanager
    def _room(self, step: int) -> Iterator[None]:
        """Go on without the details of some steps if the disk has no room for those that are written in the context."""
        try:
            yield
        except OSError as error:
            if error.errno not in frames.FULL:
                raise
            if not self._full_until:
                self._around.notice(
                    f"the disk is full at step {step}: only losses are recorded until there is room, which is tried at "
                    f"one step in {RETRIED_AFTER}; free some space for {self._config.journal}"
                )
            self._full_until = step + RETRIED_AFTER

    def _is_selected(self, step: int) -> bool:
        """Return whether a step's details are wanted, or may be if the loss spikes."""
        return self._config.records("params") and (self._held is not None or step in self._config.steps)

    def _note_overhead(self, limit: float) -> None:
        total = self._share.total()
        self._log.write("overhead", limit=limit, **total)
        if total["left_out"]:
            steps = "1 step" if total["left_out"] == 1 else f"{total['left_out']:,} steps"
            self._around.notice(
                f"the details of {steps} were left out, so that recording takes at most {100 * limit:g}% of the "
                f"training's time (--overhead); at the end they were recorded at one step in {total['every']}"
            )

    def write_logged(self, logged: Sequence[LoggedStep], step: int) -> None:
        """Write the values that were logged for the last step after it had ended.

        Values of `step`, which has not ended, are not written.
        """
        read = self._mode.read([tensor for values in logged for tensor in values.tensors])
        self._write_logged(logged, iter(read), step)

    def write_last_values(self) -> None:
        """Keep the last step's values, unless they have changed since the step.

        A run that ends early (`until`) is asked for nothing after its last step in question.
        """
        if self._last is None or self._config.until is not None:
            return
        table, step, digests = self._last
        values = self._mode.in_place([named.tensor for named in table.tensors])
        if _hashes(self._digester.launch(values)()) == _hashes(digests):
            self._values.write_last(table.number, step, values)

    def _write_logged(self, logged: Sequence[LoggedStep], read: Iterator[torch.Tensor], step: int) -> dict[str, Any]:
        """Write the values that the script logged for steps that are already written. Return those of `step`."""
        fields_by_step = {values.step: described(values, read) for values in logged}
        for number in (number for number in fields_by_step if number < step):
            self._log.write("logged", step=number, **fields_by_step[number])
            self._note_nonfinite(number, fields_by_step[number].get("losses", ()))
        return fields_by_step.get(step, {})

    def _note_nonfinite(self, step: int, losses: Sequence[float | str]) -> None:
        # JSON cannot represent numbers that are not finite: they are written as strings.
        if self._finite and any(isinstance(loss, str) for loss in losses):
            self._finite = False
            self._around.nonfinite(step)


def _payload(digests: bytes, ended: EndedStep) -> list[bytes]:
    """Return the parts of a frame: a digest for each tensor of the table, then one for each parameter's gradient.

    `digests` are those of `ended.state`, which lacks the gradients that do not exist.
    """
    size = len(ABSENT)
    if len(digests) == size * (len(ended.table.tensors) + len(ended.gradients)):
        return [digests]
    values = size * len(ended.table.tensors)
    upcoming = iter([digests[start : start + size] for start in range(values, len(digests), size)])
    return [digests[:values], *(ABSENT if gradient is None else next(upcoming) for gradient in ended.gradients)]


def _hashes(records: bytes) -> list[str]:
    """Return the hashes of records. The sums in a record depend on the device that adds; its hash, only on the bits."""
    return [hash_text(records[start : start + RECORD_BYTES]) for start in range(0, len(records), RECORD_BYTES)]


class SketchFile:
    """The sketches of a step's tensors, for runs that have sharded tensors or request sketches.

    There is one frame per step. It holds a sketch of every tensor of the step's table, then of every parameter's
    gradient. For a sharded tensor, each rank writes its contribution to the sketch of the whole, so that the ranks'
    records add up to that sketch. A rank whose part only repeats another rank's part writes zeros.
    """

    def __init__(self, folder: Path, log: EventLog, *, requested: bool) -> None:
        self._file = FrameFile(folder / frames.SKETCHES)
        self._log = log
        self._requested = requested
        self._sketcher: Sketcher | None = None
        self._reported: set[str] = set()

    def write(self, ended: EndedStep, state: Sequence[torch.Tensor]) -> None:
        """Write the sketches of a step. Values of an accelerator are copied to the CPU for them.

        `state` are the values of `ended.state` on this rank. Raises OSError (disk full).
        """
        tensors = [named.tensor for named in ended.table.tensors]
        if not self._requested and not some_are_sharded(tensors):
            return
        # The sketcher is compiled on first use, because most runs never need it.
        sketcher = self._sketcher = self._sketcher or Sketcher()
        # If a gradient is sharded differently from its parameter, its shard is recorded: the two tensors' digests do
        # not add up in the same way.
        for named, gradient in zip(ended.table.parameters, ended.gradients, strict=True):
            if named.name in self._reported or gradient is None or not is_sharded(named.tensor):
                continue
            gradient_shard = shard_of(gradient)
            if gradient_shard is not None and gradient_shard != shard_of(named.tensor):
                self._reported.add(named.name)
                self._log.write("gradient-shard", tensor=named.name, shard=asdict(gradient_shard))
        values, payload = iter(on_host(state)), []
        for tensor in [*tensors, *ended.gradients]:
            shard = None if tensor is None else shard_of(tensor)
            local = None if tensor is None else next(values)
            if local is None or (shard is not None and shard.offset is None):
                payload.append(ABSENT_SKETCH)
                continue
            if shard is None:
                sketch = sketcher.sketch(local)
            elif not shard.adds:
                sketch = NOTHING
            else:
                sketch = sketcher.sketch(local, shard.whole, shard.offset)
            payload.append(ABSENT_SKETCH if sketch is None else pack_sketch(sketch))
        self._file.frame(ended.table.number, ended.number, payload, sum(len(part) for part in payload))
