"""Whether a snapshot gives again what it gave: the replay and the comparison in one, and their answer in
words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ...observers.snapshots.snapshot_file import read_snapshot
from ...observers.snapshots.snapshot_record import Snapshot
from ...observers.snapshots.snapshot_replay import mode_of, replayed
from .replay_comparison import Comparison, compared


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a replay in the mode `spec`. `holds` when all outputs are identical or within rounding, or
    when an error was recorded and there is one again, which another backend words otherwise. `error` is what
    the replay raised, "" where it raised nothing.

    Of what depends on random numbers of which the replay drew others nothing is asked: then it is not
    `comparable` as a whole, and holds when the rest does."""

    spec: str
    holds: bool
    text: str
    error: str
    comparison: Comparison
    notes: tuple[str, ...]

    @property
    def comparable(self) -> bool:
        return not self.comparison.of_other_draws


def answer_of(path: Path, mode: str | None = None, snapshot: Snapshot | None = None) -> Answer:
    """Replay the snapshot in a file in a mode, by default its own.

    Raises SnapshotError where it cannot be read or executed, ModeError for a mode that there is not, and
    NotAvailable."""
    snapshot = read_snapshot(path) if snapshot is None else snapshot
    spec = mode_of(snapshot, path, mode)
    outcome = replayed(snapshot, path, spec)
    if snapshot.error or outcome.error:
        holds, text = _of_errors(snapshot.error, outcome.error)
        return Answer(str(spec), holds, text, outcome.error, Comparison(()), outcome.notes)
    comparison = compared(snapshot, outcome.values, outcome.drawn_otherwise)
    return Answer(str(spec), not comparison.beyond, _text(comparison), "", comparison, outcome.notes)


def _of_errors(recorded: str, given: str) -> tuple[bool, str]:
    if given and (recorded == given or recorded.startswith(f"{given} (")):  # and the line of the script
        return True, f"it gives the error again: {given}"
    if recorded and given:
        return True, f"it gives an error, too: {given} (recorded was {recorded})"
    if given:
        return False, f"it gives the error {given}; recorded were values"
    return False, f"it gives no error here; recorded was {recorded}"


def _text(comparison: Comparison) -> str:
    others = comparison.of_other_draws
    if not others:
        return _text_of_compared(comparison)
    lead = (
        f"{len(others)} of {_outputs(comparison)} cannot be compared: they depend on random numbers that "
        "Inductor's own generator drew, and others are drawn here"
    )
    rest = replace(comparison, outputs=tuple(one for one in comparison.outputs if one not in others))
    return f"{lead}; of the rest {_text_of_compared(rest)}" if rest.outputs else lead


def _outputs(comparison: Comparison) -> str:
    count = len(comparison.outputs)
    return f"{count} output" + "s" * (count != 1)


def _text_of_compared(comparison: Comparison) -> str:
    count, outputs = len(comparison.outputs), _outputs(comparison)
    if all(one.state == "not held" for one in comparison.outputs):
        return f"it was executed; its {outputs} were not kept, so there is nothing to compare with"
    if comparison.identical:
        return (
            f"all {outputs} are identical, bit for bit"
            if count > 1
            else "its output is identical, bit for bit"
        )
    differing = sum(one.state in ("within rounding", "beyond rounding") for one in comparison.outputs)
    if not differing:
        return f"all values of {outputs} are equal; NaN or zeros have other signs"
    if not comparison.beyond:
        return f"{differing} of {outputs} differ, within rounding"
    why = f" (rounding could not be measured: {comparison.unmeasured})" if comparison.unmeasured else ""
    names = ", ".join(one.name for one in comparison.beyond[:3])
    more = f" and {len(comparison.beyond) - 3} more" if len(comparison.beyond) > 3 else ""
    return f"{differing} of {outputs} differ, beyond rounding {names}{more}{why}"
