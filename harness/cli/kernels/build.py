"""`numdrift kernels build`: compiles a kernel of your own and tries it."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from numdrift.kernels.native.source import checked_path, user_source
from numdrift.kernels.registry import built_in

from ...backends.mode_presence import OPENER
from ...compiler import compile_library
from ...errors import NumdriftError, UsageError
from ..command_options import json_option
from ..output import console, table, write_json
from .parameters import SECONDS, complete_op, named_op

EXAMPLES = """\b
Examples:
  numdrift kernels build mine.c
  numdrift kernels build mine.c --op tanh_backward
  numdrift kernels build mine.py --op tanh_backward --json -

\b
A C file defines void kernel_float32(int64_t n, <numbers>, <tensors>, float *result), a similar kernel_float64, or
both. These functions compute element by element. A Python file defines a function named after the op. --op prints
the declaration for that op.

\b
The file is loaded and tried in a separate process, which is ended after --timeout SECONDS. A kernel is refused if it
crashes, writes to its arguments, or returns shapes or dtypes that differ from the op's.
"""


@click.command(
    epilog=EXAMPLES,
    help="Compile or load the kernel in PATH, a .c or .py file, and describe it; with --op, try it on a small input.",
)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--op", default="", callback=named_op, shell_complete=complete_op, metavar="OP",
    help="The op that the kernel is for, as in tanh_backward.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=SECONDS, show_default=True,
    metavar="SECONDS", help="The time limit for loading and trying the file.",
)  # fmt: skip
@json_option
def command(path: Path, op: str, timeout: float, json_path: str | None) -> None:
    file = checked_path(path)
    if file.suffix == ".py" and not op:
        raise UsageError(f"{path} is Python: say which op it is for, as in --op tanh_backward")
    if op:
        built_in().name_of_own(op, path)
    library = compile_library(user_source(file)) if file.suffix == ".c" else None
    trial_result = _try(file, op, timeout)
    for warning in trial_result["warnings"]:
        console(stderr=True).print(f"numdrift: {warning}", soft_wrap=True)
    if json_path:
        about = {"schema": 1, "path": str(file), "op": op, "compiler": None, "flags": [], "library": None}
        if library is not None:
            about |= {"compiler": library.compiler, "flags": library.flags, "library": str(library.path)}
        write_json(json_path, about | trial_result)
    if json_path != "-":
        rows = table("", "")
        rows.show_header = False
        rows.add_row("kernel", f"{op}={file.stem}" if op else file.stem)
        rows.add_row("file", str(file))
        if library is not None:
            rows.add_row("compiler", shlex.join(library.compiler))
            rows.add_row("flags", " ".join(library.flags))
            rows.add_row("library", str(library.path))
        rows.add_row("dtypes", ", ".join(trial_result["dtypes"]))
        if op:
            rows.add_row("called as", trial_result["expects"])
        outcomes = dict(trial_result["outcomes"])
        different = set(outcomes.values())
        # if no dtype was tried, the common reason is printed once
        if len(outcomes) > 1 and len(different) == 1 and min(different).startswith("not tried"):
            outcomes = {"": min(different)}
        for dtype, outcome in outcomes.items():
            rows.add_row(f"tried {dtype}".strip(), outcome)
        console().print(rows)


def _try(file: Path, op: str, seconds: float) -> dict[str, Any]:
    """Try the kernel in a separate process and return the result. Raises the error that ended the trial."""
    with tempfile.TemporaryDirectory(prefix="numdrift-trial-") as folder:
        result = Path(folder) / "trial.json"
        try:
            done = subprocess.run(
                [sys.executable, "-m", "numdrift.kernels.lab.trial", str(file), op, str(result), OPENER],
                check=False,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            why = f"was not loaded and tried within {seconds:g} s; --timeout SECONDS allows more"
            raise UsageError(f"{file} {why}") from None
        if not result.exists():
            if done.returncode < 0:
                ending = f"crashed with {signal.Signals(-done.returncode).name}"
            else:
                last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
                ending = f"ended the process with exit code {done.returncode} ({last})"
            raise UsageError(f"{file} {ending} when it was loaded and tried")
        trial_result: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    # raise the error that the trial reported, with the trial's exit code
    error, exit_code = trial_result.pop("error"), trial_result.pop("exit_code")
    if error:
        raise (UsageError if exit_code == UsageError.exit_code else NumdriftError)(error)
    return trial_result
