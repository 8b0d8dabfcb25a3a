"""A public script tried: bare, in each mode, investigated, and with faults planted."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from .corpus import PlantedFault, PublicScript

MODES = ("cpu", "compile", "lazy")

TIMEOUT = 300
"""Seconds after which a bare script, or a run, is ended."""

SEEDED = """
import random, runpy, sys
from pathlib import Path
import numpy, torch
random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
del sys.argv[0]
sys.path[0] = str(Path(sys.argv[0]).absolute().parent)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Plain Python, with the generators as numdrift leaves them where the script does not seed them."""

TIMES = re.compile(rb"(?i)((step )?time|sps):? *\d[\d.]* *m?s?\b|\b\d[\d.]* *(ms|s|seconds)\b")
"""What scripts print of the time that they take, which is nobody's to compare."""

ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "1", "OMP_WAIT_POLICY": "passive", "MPLBACKEND": "Agg"}


@dataclass(frozen=True, slots=True)
class Ran:
    """How a script went in a mode: `seconds` of the whole process, the `steps` that it took, and where it failed its
    `message`. `same` says whether it printed and wrote what the bare script does (None: not compared), else `why`."""

    status: str
    seconds: float
    steps: int = 0
    message: str = ""
    same: bool | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Investigated:
    """What an investigation says of compile against cpu, or of a planted fault: `right` is None where nobody knows what
    is right."""

    verdict: str
    text: str
    causes: Sequence[str]
    seconds: float
    right: bool | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """All that is known of a script; `steps` are those of its investigation."""

    name: str
    repository: str
    commit: str
    script: str
    data: str
    steps: int
    bare: Ran
    runs: Mapping[str, Ran]
    investigated: Investigated
    faults: Mapping[str, Investigated] = field(default_factory=dict)


def try_script(one: PublicScript, corpus: Path, python: str, scratch: Path) -> Tried:
    """Everything, in folders of its own under `scratch`. `python` is the interpreter that has what the script imports."""
    shutil.copytree(corpus / one.folder, scratch / "bare", symlinks=True)
    shutil.copytree(corpus / one.folder, scratch / "tried", symlinks=True)
    bare, printed = run_bare(one, python, scratch / "bare")
    runs = {mode: recorded(one, mode, python, scratch, printed) for mode in MODES}
    found = investigated(one, python, scratch / "tried", scratch / "runs", ["cpu", "compile"])
    faults = {fault.name: faulty(one, fault, corpus, python, scratch) for fault in one.faults}
    place = os.path.normpath(f"{one.folder}/{one.inside}/{one.script}")
    return Tried(one.name, one.repository, one.commit, place, one.data, one.steps, bare, runs, found, faults)


def run_bare(one: PublicScript, python: str, folder: Path) -> tuple[Ran, bytes]:
    """The script in plain Python, and what it prints; what never ends is ended."""
    began = time.perf_counter()
    command = [python, "-c", SEEDED, one.script, *one.arguments]
    try:
        limit = TIMEOUT / 10 if one.endless else TIMEOUT
        done = subprocess.run(
            command, check=False, cwd=folder / one.inside, env=_environment(one), capture_output=True, timeout=limit
        )
        status, printed, told = ("complete" if done.returncode == 0 else "crashed"), done.stdout, done.stderr
    except subprocess.TimeoutExpired as ended:
        status, printed, told = "ended", ended.stdout or b"", ended.stderr or b""
    message = told.decode(errors="replace").strip().rpartition("\n")[2] if status == "crashed" else ""
    return Ran(status, time.perf_counter() - began, message=message), printed


def recorded(one: PublicScript, mode: str, python: str, scratch: Path, printed: bytes) -> Ran:
    """The script in a mode, compared with what it `printed` bare and against the files that it wrote there."""
    limit = ["--max-steps", str(one.limit)] if one.limit and (one.endless or mode != "cpu") else []
    asked = ["--mode", mode, "--keep-files", "--timeout", str(TIMEOUT), *limit]
    began = time.perf_counter()
    answer = _numdrift(one, ["run", one.script, *asked], python, scratch / "tried", scratch / f"runs-{mode}")
    seconds = time.perf_counter() - began
    if not isinstance(answer, dict):
        return Ran("refused", seconds, message=answer)
    [run] = answer["runs"]
    if mode != "cpu" or run["status"] != "complete":
        message = str(run["message"] or "").replace(f"{scratch / 'tried'}/", "")
        return Ran(run["status"], seconds, run["steps"], message)
    why = "; ".join(_differences(one, Path(run["path"]), scratch / "bare", printed))
    return Ran(run["status"], seconds, run["steps"], same=not why, why=why)


def investigated(
    one: PublicScript, python: str, folder: Path, out: Path, modes: Sequence[str], fault: PlantedFault | None = None
) -> Investigated:
    """What is said of the second mode against the first."""
    steps = ["--max-steps", str(one.steps), "--timeout", str(TIMEOUT)]
    named = [word for mode in modes for word in ("--mode", mode)]
    began = time.perf_counter()
    answer = _numdrift(one, ["investigate", one.script, *named, *steps, "--no-confirm"], python, folder, out)
    seconds = time.perf_counter() - began
    if not isinstance(answer, dict):
        return Investigated("refused", answer, (), seconds, None if fault is None else False)
    [pair] = answer["pairs"]
    # what is proven, and what makes the set-up another one
    causes = [each for each in pair["culprits"] if each.get("status", "culprit") == "culprit"]
    said = [_named(each) for each in causes]
    right = None
    if fault is not None:
        right = pair["verdict"] == fault.verdict and any(_is(fault, each) for each in causes)
    return Investigated(pair["verdict"] or "undecided", pair["text"][0], said, seconds, right)


def faulty(one: PublicScript, fault: PlantedFault, corpus: Path, python: str, scratch: Path) -> Investigated:
    folder = scratch / f"fault-{fault.name}"
    shutil.copytree(corpus / one.folder, folder, symlinks=True)
    path = folder / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.old) != 1:
        raise SystemExit(f"{one.name}: {fault.file} has {text.count(fault.old)} places for the fault {fault.name!r}")
    path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
    modes = ["cpu", f"b=cpu,env.FAULT={fault.name}"]
    return investigated(one, python, folder, scratch / f"runs-{fault.name}", modes, fault)


def _is(fault: PlantedFault, culprit: Mapping[str, Any]) -> bool:
    if culprit.get("kind") == "setup" and not fault.line:
        return True
    where = str(culprit.get("source") or "").rpartition("/")[2] == f"{Path(fault.file).name}:{fault.line}"
    return (where or not fault.line) and (not fault.op or culprit.get("op") == fault.op)


def _named(culprit: Mapping[str, Any]) -> str:
    line = str(culprit.get("source") or "").rpartition("/")[2]
    what = (
        culprit.get("op")
        or culprit.get("text")
        or culprit.get("name")
        or culprit.get("what")
        or "the inputs of the step"
    )
    return f"{what}{f', {line}' if line else ''}"


def _numdrift(one: PublicScript, words: Sequence[str], python: str, folder: Path, out: Path) -> dict[str, Any] | str:
    """The JSON of a command, or why there is none."""
    command = [*words, "--out", str(out), "--json", "-", "--quiet", "--", *one.arguments]
    done = command_line(command, python, folder / one.inside, _environment(one))
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
    except ValueError:
        return done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"


def command_line(
    words: Sequence[str], python: str, folder: Path, variables: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run numdrift in a folder."""
    return subprocess.run(
        [python, "-m", "numdrift", *words], check=False, cwd=folder, env=variables, capture_output=True, text=True
    )


def _differences(one: PublicScript, run: Path, bare: Path, printed: bytes) -> Iterator[str]:
    """What a recorded run has printed or written otherwise than the bare script."""
    mine, theirs = (TIMES.sub(b"", one).splitlines() for one in ((run / "stdout.log").read_bytes(), printed))
    if one.endless:  # one of the two was ended before the other, perhaps within a line
        common = max(0, min(len(mine), len(theirs)) - 1)
        mine, theirs = mine[:common], theirs[:common]
    both = zip_longest(mine, theirs)
    place = next((number for number, (a, b) in enumerate(both, 1) if a != b), None)
    if place is not None:
        yield f"it prints something else from line {place} of {len(theirs)} on"
    for name in one.writes:
        kept = sorted((run / "files").rglob(Path(name).name))
        if not kept or not (bare / name).exists():
            yield f"{name} was not written {'by the recorded run' if (bare / name).exists() else 'bare'}"
        elif _digest(kept[0]) != _digest(bare / name):
            yield f"{name} has other bytes"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _environment(one: PublicScript) -> dict[str, str]:
    return {**os.environ, **ENVIRONMENT, **one.environment}
