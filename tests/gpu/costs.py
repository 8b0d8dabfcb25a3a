"""What recording costs a training, and how much device memory an investigation takes."""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import Any

from numdrift import load_run

from .investigations import GPT
from .laboratory import Laboratory, Measured, failed
from .machine import MemorySamples

ROUNDS = 3
LEVELS = ("losses", "params", "ops")

TIMED = {
    "cuda": ("--width", "512", "--layers", "6", "--batch", "8", "--steps", "150"),
    "standin": ("--steps", "12"),
}
"""The training that is timed, by device: long enough for its steps to matter."""

SLOW = {"cuda": ("--steps", "20"), "standin": ("--steps", "8")}
"""Steps of it where every op is recorded."""

LARGE = {
    "cuda": ("--width", "512", "--layers", "3", "--batch", "16", "--context", "256", "--steps", "3"),
    "standin": ("--steps", "4"),
}
"""The training whose memory is measured: its tensors take more than what a process takes to begin with."""

MOST_TIMES = 3.0
"""Times of the bare training's device memory that an investigation may take."""

A_STEP = re.compile(r"a step took ([\d.]+) ms")


def overhead(lab: Laboratory, name: str, limit: float) -> Measured:
    """Time a step bare and with each level of recording, in turns; the script itself times its steps, after some."""
    took: dict[str, list[float]] = {}
    for number in range(ROUNDS):
        for level in ("bare", *LEVELS):
            if level == "ops" and number:
                continue
            seconds = _milliseconds(lab, f"{name}-{level}-{number}", level, limit / 8)
            if isinstance(seconds, Measured):
                return seconds
            took.setdefault(level, []).append(seconds)
    bare = statistics.median(took["bare"])
    times = {level: statistics.median(took[level]) / bare for level in LEVELS}
    found = ", ".join(f"{level} {ratio:.2f}" for level, ratio in times.items())
    return Measured(f"{found} times a bare step of {bare:.2f} ms", "", {"milliseconds": took, "times bare": times})


def _milliseconds(lab: Laboratory, name: str, level: str, limit: float) -> float | Measured:
    """What a step takes at a level of recording, or how that failed."""
    kind = lab.device.name
    arguments = [*TIMED[kind], *(SLOW[kind] if level == "ops" else ())]
    if level == "bare":
        words, variables = GPT.bare(kind)
        done = lab.commands.python(
            GPT.path, *arguments, *words, limit=limit, variables={**lab.device.bare_variables, **variables}
        )
        printed = done.out
    else:
        mode = lab.modes("cuda")
        done = lab.run(name, "run", GPT.path, *mode, "--record", level, "--quiet", "--", *arguments, limit=limit)
        log = lab.folder / name / lab.device.name / "stdout.log"
        printed = log.read_text(encoding="utf-8") if log.exists() else ""
    found = A_STEP.search(printed)
    return float(found[1]) if done.code == 0 and found else failed(done)


def device_memory(lab: Laboratory, name: str, limit: float) -> Measured:
    """Compare the device memory of an investigation of two eager modes with that of the training alone."""
    arguments = ("--", *LARGE[lab.device.name])
    with MemorySamples() as alone:
        modes = lab.modes("cuda")
        done = lab.run(
            f"{name}-bare", "run", GPT.path, *modes, "--record", "losses", "--quiet", *arguments, limit=limit / 3
        )
    if done.code != 0:
        return failed(done)
    with MemorySamples() as together:
        repeating = "sdpa=flash,deterministic=on"
        modes = lab.modes(f"cuda=cuda,{repeating}", f"faulty=cuda,{repeating},env.FAULT=scale")
        done = lab.run(name, "investigate", GPT.path, *modes, "--no-confirm", "--quiet", *arguments, limit=limit)
    if done.code not in (0, 1):
        return failed(done)
    bare, runs = peaks(lab.folder / f"{name}-bare"), peaks(lab.folder / name)
    if not bare or not runs:
        return Measured("unknown", "no run has written down its device memory")
    details: dict[str, Any] = {"bare": bare, "processes": runs}
    largest, summed = (f"{peak / max(bare):.2f} times" for peak in (max(runs), sum(runs)))
    summed = f"sum of the {len(runs)} processes' peaks: {summed}"
    if not alone.peak or not together.peak:
        return Measured(f"largest process: {largest} the bare script's; {summed}", "", details)
    times = together.peak / alone.peak
    details |= {"bare MiB": alone.peak, "investigation MiB": together.peak, "times bare": times}
    allowed = f"{times:.2f} times the bare script's memory, {MOST_TIMES:g} are allowed"
    found = f"peak of all processes together: {times:.2f} times the bare script's; largest process: {largest}; {summed}"
    return Measured(found, allowed if times > MOST_TIMES else "", details)


def peaks(folder: Path) -> list[int]:
    """Return the most device memory that each run of an investigation has reserved, in bytes."""
    ends = [load_run(path.parent).journal.end or {} for path in sorted(folder.rglob("run.json"))]
    return [end["device_memory"]["reserved_peak"] for end in ends if "device_memory" in end]
