"""The process that executes a snapshot in a separate interpreter, such as one that has torch_xla.

Its request is a JSON file: the snapshot, the mode, and the path of the answer. The answer holds the outputs as the
values `0`, `1` and so on, in order, and everything else as facts, including a refusal.
"""

from __future__ import annotations

import json
from pathlib import Path

from ...errors import NotAvailable, NumdriftError
from ...records.modes.mode_spec import ModeSpec
from ...snapshots.snapshot_file import read_snapshot
from ...tape.files.tensor_file import write_tensors
from .snapshot_replay import replayed


def main(config: Path) -> int:
    """Execute the request in the file. Return the exit code."""
    request = json.loads(config.read_text(encoding="utf-8"))
    snapshot, answer = Path(request["snapshot"]), Path(request["answer"])
    try:
        outcome = replayed(read_snapshot(snapshot), snapshot, ModeSpec.from_json(request["mode"]))
    except NotAvailable as error:
        lacking = {"what": error.what, "why": error.why, "remedy": error.remedy}
        write_tensors(answer, {}, {"refused": str(error), "lacking": lacking})
        return 0
    except NumdriftError as error:
        write_tensors(answer, {}, {"refused": str(error), "exit_code": error.exit_code})
        return 0
    facts = {
        "error": outcome.error,
        "notes": list(outcome.notes),
        "drawn_otherwise": sorted(outcome.drawn_otherwise),
    }
    write_tensors(answer, {str(number): value for number, value in enumerate(outcome.values)}, facts)
    return 0
