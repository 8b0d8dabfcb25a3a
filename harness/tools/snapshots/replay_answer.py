"""The result of replaying a snapshot: its outputs compared with the recorded ones, and a sentence about the result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ...backends.replaying.snapshot_replay import mode_of, replayed
from ...drift.norms import difference
from ...drift.ulp import max_ulp
from ...launch.xla_environment import in_their_interpreters
from ...snapshots.snapshot_file import read_snapshot
from ...snapshots.snapshot_record import Snapshot
from ...tape.replaying.ensemble import ReplayNoise, measure_noise
from ...tape.replaying.replay import AsRecorded, Replay, is_same
from .replay_elsewhere import replayed_elsewhere


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a replay in the mode `spec`.

    It `holds` if all outputs are identical or within rounding. If an error was recorded, it holds if the replay raises
    an error as well; another backend may word the error differently. `error` is the replay's error, "" if it raised
    none.

    Outputs that depend on random numbers are not judged if the replay drew different numbers. The answer is then not
    `comparable`, and holds if the remaining outputs are identical or within rounding.
    """

    spec: str
    holds: bool
    text: str
    error: str
    comparison: ReplayComparison
    notes: tuple[str, ...]

    @property
    def comparable(self) -> bool:
        return not self.comparison.of_other_draws


def answer_of(path: Path, mode: str | None = None, snapshot: Snapshot | None = None) -> Answer:
    """Replay the snapshot in a file, by default in its own mode.

    Raises SnapshotError if the snapshot cannot be read or executed, ModeError for an unknown mode, UsageError for an
    unsuitable interpreter, and NotAvailable."""
    snapshot = read_snapshot(path) if snapshot is None else snapshot
    spec = mode_of(snapshot, path, mode)
    # The snapshot's own mode names an interpreter of the machine where the snapshot was taken, and not of this machine.
    spec = spec if mode is not None else replace(spec, python=None)
    resolved = in_their_interpreters([spec])
    (target,) = resolved.modes
    # Only a process of the mode uses the mode's device.
    is_local = target.python is None and target.accelerator is None
    outcome = replayed(snapshot, path, target) if is_local else replayed_elsewhere(path, target)
    outcome = replace(outcome, notes=(*outcome.notes, *resolved.sentences))
    recorded, raised = snapshot.error, outcome.error
    if not recorded and not raised:
        comparison = compared(snapshot, outcome.values, outcome.drawn_otherwise)
        return Answer(str(spec), not comparison.beyond, _text(comparison), "", comparison, outcome.notes)
    if raised and (recorded == raised or recorded.startswith(f"{raised} (")):  # `(` begins the line of the script
        text = f"it raises the same error: {raised}"
    elif recorded and raised:
        # Another backend may word the same refusal differently.
        text = f"it raises an error as well: {raised} (the recorded error is {recorded})"
    elif raised:
        text = f"it raises the error {raised}, but the recorded execution raised none"
    else:
        text = f"it raises no error here, but the recorded execution raised {recorded}"
    return Answer(str(spec), bool(recorded and raised), text, raised, ReplayComparison(()), outcome.notes)


def _text(comparison: ReplayComparison) -> str:
    others = comparison.of_other_draws
    if not others:
        return _text_of_compared(comparison)
    lead = (
        f"{len(others)} of {_outputs(comparison)} cannot be compared, because the replay draws different numbers "
        "from Inductor's own generator"
    )
    rest = replace(comparison, outputs=tuple(output for output in comparison.outputs if output not in others))
    return f"{lead}; for the rest: {_text_of_compared(rest)}" if rest.outputs else lead


def _outputs(comparison: ReplayComparison) -> str:
    count = len(comparison.outputs)
    return f"{count} output" + "s" * (count != 1)


def _text_of_compared(comparison: ReplayComparison) -> str:
    count, outputs = len(comparison.outputs), _outputs(comparison)
    if all(output.state == "not held" for output in comparison.outputs):
        were = "was" if count == 1 else "were"
        return f"it was executed, but its {outputs} {were} not recorded, so there is nothing to compare"
    if comparison.identical:
        return f"all {outputs} are identical, bit for bit" if count > 1 else "its output is identical, bit for bit"
    differing = sum(output.state in ("within rounding", "beyond rounding") for output in comparison.outputs)
    if not differing:
        return f"all values of {outputs} are equal, except for the signs of NaN or zeros"
    differ = "differs" if differing == 1 else "differ"
    if not comparison.beyond:
        return f"{differing} of {outputs} {differ}, within rounding"
    why = f" (rounding could not be measured: {comparison.unmeasured})" if comparison.unmeasured else ""
    names = ", ".join(output.name for output in comparison.beyond[:3])
    more = f" and {len(comparison.beyond) - 3} more" if len(comparison.beyond) > 3 else ""
    return f"{differing} of {outputs} {differ}; beyond rounding: {names}{more}{why}"


# The replay's outputs compared with the recorded ones: bit for bit, in ULP, and in units of the noise of rounding.
#
# An output is *within rounding* if its NaN and infinities are at the same places, and if its distance from the recorded
# output is at most
#
#     LIMIT * rms,    rms = sqrt(mean_i ||x_i - x||_2**2)
#
# where x is the result of the calls executed op by op, and the x_i are their results with random rounding after every
# op (Monte Carlo arithmetic, see `harness/tape/replaying/rounding.py`). An output that rounding does not move
# (integers, copies) must be identical to the recorded output, or must also differ in at least one of the x_i.

LIMIT = 16.0
"""The largest multiple of rounding's noise that counts as rounding: the threshold in docs/guide/verdict.md."""

REPLAYS = 8
"""The number of repetitions with random rounding, as for the verdict."""

State = Literal["identical", "equal", "within rounding", "beyond rounding", "not held"]
"""`identical`: all bits are the same. `equal`: all values are the same (NaN equals NaN, 0.0 equals -0.0). `not held`:
the snapshot lacks the output's value. The comment above defines `within rounding`; the rest is `beyond rounding`."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One output compared with its recorded value.

    max_ulp: None for numbers that are not floating-point
    relative_l2: None if the recorded value is zero
    of_rounding: the distance over rms; None if the output is identical or rounding does not move it
    other_draws: whether the output depends on random numbers and the replay drew different ones; a difference then
        means nothing
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    state: State
    differing: int = 0
    max_ulp: int | None = None
    relative_l2: float | None = None
    of_rounding: float | None = None
    other_draws: bool = False


@dataclass(frozen=True, slots=True)
class ReplayComparison:
    """All outputs of a replay. `unmeasured` is the reason why rounding noise could not be measured, else ""."""

    outputs: tuple[Compared, ...]
    unmeasured: str = ""

    @property
    def identical(self) -> bool:
        return all(output.state in ("identical", "not held") for output in self.outputs)

    @property
    def beyond(self) -> tuple[Compared, ...]:
        """The outputs that are beyond rounding without a known reason."""
        return tuple(output for output in self.outputs if output.state == "beyond rounding" and not output.other_draws)

    @property
    def of_other_draws(self) -> tuple[Compared, ...]:
        """The outputs that cannot be compared."""
        return tuple(output for output in self.outputs if output.other_draws)


def compared(
    snapshot: Snapshot, values: Sequence[torch.Tensor], drawn_otherwise: Collection[str] = ()
) -> ReplayComparison:
    """Compare a replay's outputs with the snapshot's.

    `drawn_otherwise` names the watched values that depend on random numbers that the replay drew differently.
    """
    recorded_values = snapshot.output_values()
    same = [kept is None or is_same(kept, value) for kept, value in zip(recorded_values, values, strict=True)]
    # Measuring the noise takes further replays, so it is measured only if an output differs.
    noise, unmeasured = ({}, "") if all(same) else _noise(snapshot)
    rows = []
    for number, (port, recorded, value) in enumerate(zip(snapshot.outputs, recorded_values, values, strict=True)):
        row = Compared(port.name, str(value.dtype).removeprefix("torch."), tuple(value.shape), "identical")
        own = noise.get(f"output {number}")
        if recorded is None:
            row = replace(row, state="not held")
        elif same[number]:
            pass
        elif recorded.shape != value.shape or recorded.dtype != value.dtype:
            row = replace(row, state="beyond rounding")
        elif not (value.is_floating_point() or value.is_complex()):
            # Rounding moves no integer, but it may flip a comparison that the integer depends on.
            state: State = "within rounding" if own is not None and own.flips > 0 else "beyond rounding"
            row = replace(row, state=state, differing=int((recorded != value).sum()))
        else:
            measured = difference(_numbers(recorded), _numbers(value))
            distance, norm = measured.distance.value, measured.norm.value
            of_rounding = distance / own.rms if own is not None and own.rms else None
            within = measured.same_places and of_rounding is not None and of_rounding <= LIMIT
            state = "within rounding" if within else "beyond rounding"
            row = replace(
                row,
                state=state if measured.differing else "equal",  # only the signs of NaN or zeros differ
                differing=measured.differing,
                max_ulp=_ulp(recorded, value),
                relative_l2=distance / norm if norm else None,
                of_rounding=of_rounding,
            )
        drew_others = row.state == "beyond rounding" and snapshot.tape.watched[number].name in drawn_otherwise
        rows.append(replace(row, other_draws=drew_others))
    return ReplayComparison(tuple(rows), unmeasured)


def _noise(snapshot: Snapshot) -> tuple[Mapping[str, ReplayNoise], str]:
    """Measure how far rounding moves each output; return the noise, or the reason why it is not known."""
    try:
        values = Replay(snapshot.tape).run(AsRecorded())
        watched = tuple(replace(entry, value=values[entry.name]) for entry in snapshot.tape.watched)
        noise = measure_noise(replace(snapshot.tape, watched=watched), REPLAYS)
    except Exception as error:  # noqa: BLE001, an op may refuse an input that was rounded at random
        return {}, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return noise.tensors, noise.reason or ""


def _ulp(recorded: torch.Tensor, value: torch.Tensor) -> int | None:
    if value.dtype == torch.bfloat16:
        return max_ulp(_patterns(recorded), _patterns(value), bfloat16=True)
    if value.is_complex():
        recorded, value = torch.view_as_real(recorded), torch.view_as_real(value)
    if value.dtype not in (torch.float16, torch.float32, torch.float64):
        return None
    return max_ulp(recorded.contiguous().numpy(), value.contiguous().numpy())


def _patterns(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    # NumPy has no bfloat16, so the bits of each number are passed as an integer.
    return tensor.contiguous().view(torch.int16).numpy().view(np.uint16)


def _numbers(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    # `conj()` only sets a flag on a tensor, which NumPy cannot represent.
    plain = tensor.resolve_conj().resolve_neg()
    exact = plain.dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128)
    array: np.ndarray[Any, Any] = (plain if exact else plain.float()).contiguous().numpy()
    return array
