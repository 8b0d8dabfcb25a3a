"""`numdrift.check_ops` and `numdrift check --ops`: PyTorch's own samples of its ops, in several modes.

numdrift.check_ops("^tanh$|log", modes=["cpu", "compile"]).answer
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from ..errors import NumdriftError, UsageError
from ..investigate.experiments.investigation_plan import compared_modes
from ..investigate.experiments.laboratory import Laboratory, Progress
from ..launch.batch_plan import planned
from ..records.codec import Unreadable, json_text, put, read_fields
from ..records.modes.mode_spec import parse_modes
from ..records.results.call_check import CallCheck
from ..records.results.op_table import FAILED, OPS, UNDECIDED, CheckedOp, OpTable
from ..records.run.call_subject import CallSubject
from ..runs.run_layout import MANIFEST
from .api_running import listener, passive_threads, specs_of
from .checking import CheckOptions, CheckRequest, calls_checked
from .investigating import DEFAULT_MODES

SCRIPT = Path(__file__).parents[1] / "script/calls/op_script.py"
CHECK = "check.json"
SAMPLES = 3
"""The default number of samples of each op."""


def check_ops(
    pattern: str,
    modes: str | Sequence[str] = DEFAULT_MODES,
    *,
    samples: int = SAMPLES,
    progress: bool = False,
    **options: Unpack[CheckOptions],
) -> OpTable:
    """Call each op of torch whose name matches a regular expression in several modes, as `numdrift check --ops` does.

        numdrift.check_ops("^tanh$|log", samples=5).rows[0].verdict

    The inputs are the first `samples` float32 samples of PyTorch's test suite. Ops that were checked before are not
    checked again. Raises UsageError if no op matches.
    """
    request = CheckRequest.of(None, specs_of(modes), (), options)
    return ops_checked(replace(request, input_seeds=samples), pattern, listener(progress))


def ops_checked(request: CheckRequest, pattern: str, progress: Progress) -> OpTable:
    """Check ops for `numdrift.check_ops` and `numdrift check --ops`. Raises UsageError.

    Each op has a folder of its own in the folder of the table. The table is written after each op, so the command goes
    on where it was interrupted. `progress` hears of each op that is done, and not of its runs.
    """
    began = time.monotonic()
    names = matching(pattern)
    modes = tuple(compared_modes(request.modes or parse_modes(DEFAULT_MODES)))
    folder = request.out / (request.name or "ops")
    rows, reused = list[CheckedOp](), 0
    with passive_threads(), Laboratory(listener(False), request.jobs, request.timeout) as laboratory:
        for name in names:
            found = None if request.force else recorded_op(folder / folder_name(name), [str(spec) for spec in modes])
            if found is not None:
                reused += 1
                rows += rows_of_op(name, found)
                continue
            try:
                found = _checked_op(replace(request, out=folder, modes=modes), name, laboratory)
                made = rows_of_op(name, found)
            except NumdriftError as error:
                made = [CheckedOp(name, spec.name, FAILED, str(error)) for spec in modes[1:]]
            rows += made
            outcomes = ", ".join(f"{row.mode} {row.verdict or UNDECIDED}" for row in made)
            progress.say(f"{name}: {outcomes}")
            write_table(folder, OpTable(pattern, modes[0].name, rows, reused, time.monotonic() - began))
    table = OpTable(pattern, modes[0].name, rows, reused, round(time.monotonic() - began, 3))
    write_table(folder, table)
    return table


def write_table(folder: Path, table: OpTable) -> None:
    """Write the table into its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    put(folder / OPS, json_text(table, indent=1))


def folder_name(op: str) -> str:
    """Return the name of an op's folder: its own name, but a folder's name does not begin with an underscore.

    >>> folder_name("_chunk_cat")
    'op._chunk_cat'
    """
    return f"op.{op}" if op.startswith("_") else op


def matching(pattern: str) -> list[str]:
    """Return the names of the ops that a regular expression matches. Raises UsageError and NumdriftError."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--ops {pattern!r} is no regular expression: {error}") from None
    module = "numdrift.harness.torch_private.op_samples"
    done = subprocess.run([sys.executable, "-m", module, pattern], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["its process failed"])[-1]
        raise NumdriftError(f"PyTorch's samples of its ops cannot be read: {last.partition(': ')[2] or last}")
    names: list[str] = json.loads(done.stdout)
    if not names:
        raise UsageError(f"--ops {pattern!r} matches no op of torch with float32 samples; --ops . matches all")
    return names


def _checked_op(request: CheckRequest, name: str, laboratory: Laboratory) -> CallCheck:
    """Check one op, and keep the result in its folder. Its processes end; those that fork others stay."""
    subject = CallSubject(op=name, seeds=request.input_seeds, gradients=request.gradients)
    # Runs without a result are left from an attempt that failed.
    left_over = (request.out / folder_name(name)).exists() and not (request.out / folder_name(name) / CHECK).exists()
    of_op = replace(
        request,
        force=request.force or left_over,
        name=folder_name(name),
        script=str(SCRIPT),
        run={**request.run, "subject": subject},
    )
    batch = planned(of_op)
    laboratory.begin_anew()
    try:
        found = calls_checked(of_op, batch, name, laboratory)
    finally:
        laboratory.workers.close_processes()
    put(batch.investigation.path / CHECK, json_text(found, indent=1))
    return found


def recorded_op(folder: Path, modes: Sequence[str]) -> CallCheck | None:
    """Return the result of an op that was checked in these modes before; None if there is none."""
    try:
        found = read_fields(CallCheck, json.loads((folder / CHECK).read_text(encoding="utf-8")))
        specs = {json.loads(path.read_text(encoding="utf-8"))["spec"] for path in folder.glob(f"*/{MANIFEST}")}
    except (OSError, ValueError, Unreadable, KeyError):
        return None
    return found if specs == set(modes) else None


def rows_of_op(name: str, found: CallCheck) -> list[CheckedOp]:
    """Return the rows of an op from its result."""
    rows = []
    for mode in found.modes:
        culprits = () if mode.pair is None else mode.pair.culprits
        proven = next((culprit.op or culprit.name for culprit in culprits if culprit.is_proven), "") or ""
        z = max((result.z for result in mode.results), default=None)
        rows.append(CheckedOp(name, mode.mode, mode.verdict, mode.answer, z, proven, found.seconds, found.folder))
    return rows
