"""Execute a snapshot in a separate process of a mode, and read the results."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from ...backends.replaying.snapshot_replay import Outcome
from ...errors import NotAvailable, NumdriftError, SnapshotError, UsageError
from ...launch.guest_process import guest_command, interpreter, run_to_end
from ...records.modes.mode_spec import ModeSpec
from ...tape.files.tensor_file import read_tensors

PROCESS = "numdrift.harness.backends.replaying.replay_process"


def replayed_elsewhere(path: Path, spec: ModeSpec) -> Outcome:
    """Execute a snapshot in a process of the mode, with the mode's Python and device.

    Raises the process's error if the process refuses, and SnapshotError if it ends without an answer."""
    with tempfile.TemporaryDirectory(prefix="numdrift-replay-") as folder:
        config, answer = Path(folder, "config.json"), Path(folder, "answer.safetensors")
        request = {
            "snapshot": str(path.absolute()),
            "mode": replace(spec, python=None).to_json(),
            "answer": str(answer),
        }
        config.write_text(json.dumps(request), encoding="utf-8")
        done = run_to_end(guest_command(config, python=interpreter(spec), module=PROCESS), spec, spec.timeout)
        if not answer.exists():
            last_line = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            place = f" in {spec.python}" if spec.python else ""
            ended = f"the process{place} ended with exit code {done.returncode}"
            raise SnapshotError(path, f"cannot be executed in mode {spec.name!r}: {ended}: {last_line}")
        values, facts = read_tensors(answer)
    refused = facts.get("refused")
    if "lacking" in facts:
        raise NotAvailable(**facts["lacking"])
    if refused is not None:
        raise (UsageError if facts["exit_code"] == UsageError.exit_code else NumdriftError)(refused)
    return Outcome(
        [values[str(number)] for number in range(len(values))],
        facts["error"],
        tuple(facts["notes"]),
        frozenset(facts["drawn_otherwise"]),
    )
