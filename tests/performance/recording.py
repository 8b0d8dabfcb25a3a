"""What recording costs a training, and the speed of the native code that recording needs.

    scripts/bench recording                  # writes docs/reference/performance-recording.md; half an hour
    scripts/bench recording --only small,start --rounds 3 --page -
    scripts/bench recording --keep runs/recording.jsonl     # goes on with what is measured there

Bare trainings, recorded trainings and trainings under other tools take turns: each process trains some steps while the others wait. A ratio
is that of neighbouring turns. The page is written anew after every part.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from numdrift.harness.compiler import compile_library
from numdrift.harness.errors import NumdriftError
from numdrift.harness.observers.calls.native_ops import native_source

from .bandwidths import CAPABILITIES
from .benchmark import provenance
from .journals import compare_journals
from .large import large_model_peaks
from .recording_page import (
    CALLS,
    COMPARED_STEPS,
    COMPARED_TENSORS,
    LACKED_MEMORY,
    PAGE,
    PROCESSOR,
    SIZE,
    STEPS,
    Measurement,
    page,
)
from .turns import NUMDRIFT, Way, take_turns
from .workloads import ROOT

EAGER = (
    Way("bare"),
    Way("losses", level="losses"),
    Way("params", level="params"),
    Way("thinned", level="params", options=("--overhead", "2%")),
    Way("ops", level="ops"),
    Way("mode", tool="mode"),
    Way("debug", tool="debug"),
    Way("hashes", tool="hashes"),
)
COMPILED = (Way("bare compiled", compiled=True), Way("ops compiled", level="ops", compiled=True))

TURNS = {"char_gpt": 3, "resnet_digits": 8, "small": 100}
"""Steps of a turn, which together take about a third of a second."""

PASSIVE = {"OMP_WAIT_POLICY": "passive"}
"""numdrift sets this for the processes of a run, so the bare trainings have it as well."""

FIRST_LINE = """
import os
import time

import torch

fields = open("/proc/self/stat").read().rpartition(")")[2].split()
uptime = float(open("/proc/uptime").read().split()[0])
print("started", uptime - int(fields[19]) / os.sysconf("SC_CLK_TCK"))
"""
"""A script that prints how long ago its process was started, to a hundredth of a second."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench recording", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts: dict[str, Callable[[int], list[Measurement]]] = {
        **{model: lambda rounds, model=model: steps(model, rounds) for model in TURNS},  # type: ignore[misc]
        "bandwidth": bandwidth,
        "start": start,
        "journals": journals,
        "large": large,
    }
    parser.add_argument("--rounds", type=int, default=25, help="how often each turn is taken (default: 25)")
    parser.add_argument("--only", default="", help=f"of {', '.join(parts)} (default: all)")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep what is measured there, and go on with it")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page is written, `-` for standard output")
    args = parser.parse_args(argv)
    only = [name for name in args.only.split(",") if name] or list(parts)
    unknown = [name for name in only if name not in parts]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(parts)}")
    measured: list[Measurement] = []
    load = f"{provenance()}; the load average of the machine was {os.getloadavg()[0]:.1f} when the command was started"
    if args.keep and args.keep.exists():
        measured = [Measurement(**json.loads(line)) for line in args.keep.read_text(encoding="utf-8").splitlines()]
    for number, name in enumerate(only, 1):
        if all(found.part != name for found in measured):
            print(f"{name} ({number} of {len(only)})", file=sys.stderr, flush=True)
            found = parts[name](args.rounds)
            measured += found
            for each in found:
                print(f"  {each.line()}", file=sys.stderr, flush=True)
            if args.keep:
                with args.keep.open("a", encoding="utf-8") as file:
                    file.writelines(json.dumps(asdict(each)) + "\n" for each in found)
        if args.page != Path("-"):
            args.page.write_text(page(measured, load), encoding="utf-8")
    if args.page == Path("-"):
        print(page(measured, load))
    else:
        print(f"Wrote {args.page}")
    return 0


def steps(model: str, rounds: int) -> list[Measurement]:
    """Measure the seconds of a step in each way, and how the memory of the process grows."""
    with suppress(NumdriftError):
        compile_library(native_source())  # which the trainings would otherwise do while they are measured
    found = []
    for ways in (EAGER, COMPILED):
        turns = take_turns(model, ways, steps=TURNS[model], rounds=rounds, environment=PASSIVE)
        for name, step in turns.ops.items():
            found.append(Measurement(model, f"{name}, {CALLS}", [step.calls]))
            found.append(Measurement(model, f"{name}, {SIZE}", [step.size]))
        for name, taken in turns.taken.items():
            found.append(Measurement(model, f"{name}, {STEPS}", [turn.seconds for turn in taken]))
            found.append(Measurement(model, f"{name}, {PROCESSOR}", [turn.processor for turn in taken]))
            # The first turns still fill caches and pools.
            half = taken[len(taken) // 2]
            found.append(Measurement(model, f"{name}, bytes of memory", [half.resident, taken[-1].resident]))
    return found


def bandwidth(rounds: int) -> list[Measurement]:
    """Measure the bandwidths in one thread, with each instruction set that the processor has."""
    found = []
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    for instructions, capability in CAPABILITIES.items():
        if ("avx512f" if instructions == "AVX-512" else "avx2") not in flags:
            continue
        command = [sys.executable, "-m", "tests.performance.bandwidths", instructions, str(rounds)]
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ | {"ATEN_CPU_CAPABILITY": capability},
        )
        for name, values in json.loads(done.stdout).items():
            found.append(Measurement("bandwidth", f"{name}, {instructions}", values))
    return found


def start(rounds: int) -> list[Measurement]:
    """Measure when a script runs its first line after importing torch, bare and recorded in turn, and `--help`."""
    bare, recorded, help_seconds = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "first_line.py")
        script.write_text(FIRST_LINE, encoding="utf-8")
        for number in range(rounds + 1):
            run = [*NUMDRIFT, "run", str(script), "--modes", "cpu", "--out", f"{folder}/{number}", "--quiet"]
            done = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True, cwd=ROOT)
            subprocess.run(
                run, check=False, capture_output=True, cwd=ROOT
            )  # a script that trains nothing ends with an error
            under = Path(folder, str(number), "first_line/cpu/stdout.log").read_text(encoding="utf-8")
            timed = "import subprocess, sys, time; began = time.perf_counter(); "
            timed += "subprocess.run(sys.argv[1:], stdout=-3); print(time.perf_counter() - began)"
            helped = subprocess.run(
                [sys.executable, "-c", timed, *NUMDRIFT, "--help"], check=True, capture_output=True, text=True
            )
            if number:  # the first round compiles Python's files
                bare.append(float(done.stdout.split()[-1]))
                recorded.append(float(under.split()[-1]))
                help_seconds.append(float(helped.stdout))
    return [
        Measurement("start", "bare", bare),
        Measurement("start", "recorded", recorded),
        Measurement("start", "--help", help_seconds),
    ]


def journals(rounds: int) -> list[Measurement]:
    """Measure the size of a journal and the comparison of two."""
    compared = compare_journals(COMPARED_STEPS, COMPARED_TENSORS, min(rounds, 3))
    return [
        Measurement("journals", "seconds", [each.seconds for each in compared]),
        Measurement("journals", "bytes of memory", [each.peak for each in compared]),
        Measurement("journals", "bytes of a journal", [compared[0].size]),
    ]


def large(rounds: int) -> list[Measurement]:
    """Measure the memory of a large model, once."""
    return [
        Measurement("large", f"{way}, {LACKED_MEMORY if killed else 'bytes of memory'}", [peak])
        for way, (peak, killed) in large_model_peaks().items()
    ]


if __name__ == "__main__":
    sys.exit(main())
