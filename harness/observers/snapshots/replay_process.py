"""The process that executes a snapshot in an interpreter of its own: torch_xla lives in one.

It is told by a JSON file which snapshot, in which mode, and where to write what came of it: the values `0`, `1` and so
on in the order of the outputs, and as facts the rest. What numdrift refuses is a fact as well.
"""

from __future__ import annotations

import json
from pathlib import Path

from ...errors import NotAvailable, NumdriftError
from ...records.mode_spec import ModeSpec
from ...tape.tensor_file import write_tensors
from .snapshot_file import read_snapshot
from .snapshot_replay import replayed


def main(config: Path) -> int:
    """Do what the file says; gives the exit code."""
    asked = json.loads(config.read_text(encoding="utf-8"))
    snapshot, answer = Path(asked["snapshot"]), Path(asked["answer"])
    try:
        outcome = replayed(read_snapshot(snapshot), snapshot, ModeSpec.from_json(asked["mode"]))
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
