"""Run each check of a file in a process of its own, forked with torch imported, and print how each ended as JSON.

    python runner.py memory_checks.py

A check is a function `check_...` that takes `torch.standin`. `VARIABLES` of its file tells the environment that a check
needs, `SIGNALS` the signal that it dies by.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import torch

Check = Callable[[Any], None]


def main() -> None:
    names = runpy.run_path(sys.argv[1])
    checks = {name: check for name, check in names.items() if name.startswith("check_")}
    variables, signals = names.get("VARIABLES", {}), names.get("SIGNALS", {})
    unknown = {*variables, *signals} - checks.keys()
    assert not unknown, f"there is no {unknown}"
    outcomes = {name: outcome(check, variables.get(name, {}), signals.get(name, 0)) for name, check in checks.items()}
    print(json.dumps(outcomes))


def outcome(check: Check, variables: dict[str, str], signal: int) -> str:
    """Return what is wrong, or an empty text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        run(check, variables, writing)
    os.close(writing)
    with os.fdopen(reading) as stream:
        errors = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return "" if status == -signal else f"{errors}\nended with {status} in place of {-signal}"


def run(check: Check, variables: dict[str, str], writing: int) -> NoReturn:
    os.dup2(writing, 2)
    os.environ.update(variables)
    holds = False
    try:
        importlib.import_module("standin_device")
        check(torch.get_device_module("standin"))
        holds = True
    finally:
        if not holds:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(not holds)


if __name__ == "__main__":
    main()
