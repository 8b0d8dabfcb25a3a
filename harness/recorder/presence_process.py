"""The process that reports whether a mode is available.

It runs as `python bootstrap.py PACKAGE CONFIG numdrift.harness.recorder.presence_process`; CONFIG is JSON:

    {"mode": ..., "script": path, "dry": false, "answer": path}

With a script, the mode's backend must also be able to follow the script's operators, and with `dry` it must do so
without executing them. The process writes the failure as JSON to `answer`, or null if the mode is available. In this
way, a vendor's package is loaded only in a process of the mode.
"""

from __future__ import annotations

import json
from pathlib import Path

from ..backends.mode_presence import require_here
from ..errors import NotAvailable, NumdriftError
from ..hooks.backend_adapter import adapter_for
from ..records.modes.mode_spec import ModeSpec


def main(config: Path) -> int:
    """Answer the request that the file `config` contains. Return the exit code for the process."""
    request = json.loads(config.read_text(encoding="utf-8"))
    answer: dict[str, object] | None = None
    try:
        spec = ModeSpec.from_json(request["mode"])
        require_here(spec)
        if request["script"]:
            adapter = adapter_for(spec)
            adapter.observe_support(request["script"], lambda call: None)
            if request["dry"]:
                adapter.without_execution()
    except NotAvailable as error:
        answer = {"what": error.what, "why": error.why, "remedy": error.remedy}
    except NumdriftError as error:
        answer = {"message": str(error), "exit_code": error.exit_code}
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    return 0
