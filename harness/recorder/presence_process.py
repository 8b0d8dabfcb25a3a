"""The process that says whether a mode is here.

It runs as `python bootstrap.py PACKAGE CONFIG numdrift.harness.recorder.presence_process`; CONFIG is JSON:

    {"mode": ..., "script": path, "dry": false, "answer": path}

With a script the mode's backend is asked whether it can tell of a script's operators, `dry` without executing them.
What is lacking is written as JSON to the `answer`, null for nothing. So a vendor's package is loaded in a process of
the mode only.
"""

from __future__ import annotations

import json
from pathlib import Path

from ..backends.mode_presence import require_here
from ..errors import NotAvailable, NumdriftError
from ..hooks.backend_adapter import adapter_for
from ..records.mode_spec import ModeSpec


def main(config: Path) -> int:
    """Answer what a file asks. Returns the exit code for the process."""
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
