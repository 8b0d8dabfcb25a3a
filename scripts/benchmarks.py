"""Measure what recording costs. Each figure compares two commands that run alternately, in one session on one machine.

scripts/bench overhead     bare script against --record params, per reproducer, cpu mode
scripts/bench steps        recorded against unrecorded steps, alternating within one run
scripts/bench memory       peak memory of the process, bare and recorded, at 1,000 and 20,000 steps
scripts/bench help         wall time of `numdrift --help`
scripts/bench swaps        time of a step with kernel.tanh_backward=fma against a step without it, in each mode
scripts/bench distance     bytes per second of the comparison of parameters, in native code and with NumPy
scripts/bench journals     seconds and memory of a comparison of two journals of 10,000 steps with 200 tensors
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from numdrift import load_run
from numdrift.harness.drift.distance import WORTH_COMPILING
from numdrift.harness.drift.parameter_distance import parameter_drift
from numdrift.harness.records import frames
from numdrift.harness.records.values.digest_record import RECORD_BYTES
from numdrift.harness.tape.files.journal_writing import EventLog, FrameFile

ROOT = Path(__file__).parent.parent
NUMDRIFT = [sys.executable, "-m", "numdrift"]
STEPS = {"sam_tanh": 1000, "resnet_digits": 150, "char_gpt": 60}


def timed(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return time.perf_counter() - began


def recorded(script: Path, arguments: list[str], folder: str) -> float:
    """Return the seconds that the script's own process took under `numdrift run --record params`."""
    command = [
        *NUMDRIFT,
        "run",
        str(script),
        "--modes",
        "cpu",
        "--out",
        folder,
        "--json",
        "-",
        "--",
        *arguments,
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return float(json.loads(done.stdout)["runs"][0]["seconds"])


def overhead(pairs: int) -> None:
    """Time whole processes, start-up included, bare and recorded in turn; print the median ratio of the pairs."""
    for name, steps in STEPS.items():
        script, arguments = ROOT / f"reproducers/{name}.py", ["--epochs", str(steps)]
        bare, under = [], []
        with tempfile.TemporaryDirectory() as folder:
            timed([sys.executable, str(script), *arguments])
            for _ in range(pairs):
                bare.append(timed([sys.executable, str(script), *arguments]))
                under.append(recorded(script, arguments, folder))
        ratios = [b / a for a, b in zip(bare, under, strict=True)]
        print(
            f"overhead {name:14} {steps:5} steps: bare {statistics.median(bare):.2f} s, "
            f"recorded {statistics.median(under):.2f} s, ratio {statistics.median(ratios):.3f} "
            f"({min(ratios):.3f} to {max(ratios):.3f}, {pairs} pairs)",
            flush=True,
        )


def steps(pairs: int) -> None:
    """Divide the time of a recorded step by the mean of its unrecorded neighbours: a busy machine slows all of them."""
    for name, count in STEPS.items():
        script = ROOT / f"reproducers/{name}.py"
        chosen = ",".join(str(step) for step in range(0, count, 2))
        arguments = ["--steps", chosen, "--", "--epochs", str(count)]
        ratios, plain = [], []
        for _ in range(pairs):
            with tempfile.TemporaryDirectory() as folder:
                command = [*NUMDRIFT, "run", str(script), "--modes", "cpu", "--out", folder, *arguments]
                subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
                ended = [step.seconds for step in load_run(Path(folder, name, "cpu")).journal.steps]
            took = [b - a for a, b in pairwise(ended)]
            # took[i] is the time of step i + 1, which is recorded if i is odd. The first ten steps are a warm-up.
            for i in range(11, len(took) - 1, 2):
                neighbours = (took[i - 1] + took[i + 1]) / 2
                plain.append(neighbours)
                ratios.append(took[i] / neighbours)
        print(
            f"steps {name:14} unrecorded {1e3 * statistics.median(plain):.2f} ms, "
            f"recorded/unrecorded {statistics.median(ratios):.3f} (median of {len(ratios)} pairs of steps)",
            flush=True,
        )


def memory(pairs: int) -> None:
    """Compare the peak resident memory of the script's process, bare and recorded."""
    script = ROOT / "tests/e2e/scripts/tiny.py"
    for steps in (1_000, 20_000):
        arguments = ["--steps", str(steps), "--width", "64"]
        bare = subprocess.run(
            [sys.executable, str(script), *arguments], check=True, capture_output=True, text=True
        ).stdout
        with tempfile.TemporaryDirectory() as folder:
            recorded(script, arguments, folder)
            under = Path(folder, "tiny/cpu/stdout.log").read_text()
        print(f"memory {steps:6,} steps: bare {_mib(bare)} MiB, recorded {_mib(under)} MiB", flush=True)


def _mib(printed: str) -> str:
    return f"{int(printed.split()[1]) / 1024:.1f}"


def help_text(pairs: int) -> None:
    """Measure the wall time of `numdrift --help`, after one warm-up."""
    command = [*NUMDRIFT, "--help"]
    timed(command)
    print(f"numdrift --help: {statistics.median(timed(command) for _ in range(2 * pairs)):.3f} s")


def swaps(pairs: int) -> None:
    """Divide the median time of a step of sam_tanh with a swapped kernel by the median without it, run alternately."""
    script, arguments = ROOT / "reproducers/sam_tanh.py", ["--record", "losses", "--", "--epochs", "200"]
    for mode in ("cpu", "compile", "lazy"):
        ratios, plain = [], []
        for _ in range(pairs):
            with tempfile.TemporaryDirectory() as folder:
                specs = ["--mode", f"plain={mode}", "--mode", f"swapped={mode},kernel.tanh_backward=fma"]
                command = [*NUMDRIFT, "run", str(script), *specs, "--out", folder, *arguments]
                subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
                without, with_swap = (_median_step(Path(folder, "sam_tanh", name)) for name in ("plain", "swapped"))
            plain.append(without)
            ratios.append(with_swap / without)
        print(
            f"swaps {mode:8} unswapped {1e3 * statistics.median(plain):.2f} ms, swapped/unswapped "
            f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}, {pairs} pairs)",
            flush=True,
        )


def distance(pairs: int) -> None:
    """Measure how fast one thread compares two float32 arrays of 64 MiB; both arrays count as bytes."""
    generator = np.random.default_rng(0)
    a = generator.standard_normal(1 << 24, np.float32)
    b = a * (1 + generator.standard_normal(1 << 24, np.float32) / 2**20)
    parameter_drift({"w": a}, {"w": b})  # this compiles the native code
    speeds: dict[str, list[float]] = {"native": [], "numpy": []}
    for _ in range(pairs):
        for how, size in (("native", a.size), ("numpy", WORTH_COMPILING - 1)):
            began = time.perf_counter()
            parameter_drift({"w": a[:size]}, {"w": b[:size]})
            speeds[how].append(8e-9 * size / (time.perf_counter() - began))
    for how, measured in speeds.items():
        print(f"distance {how}: {statistics.median(measured):.2f} GB/s ({min(measured):.2f} to {max(measured):.2f})")


def journals(pairs: int) -> None:
    """Compare the digests of two equal journals in a process of its own, which also reads their lines."""
    steps, tensors = 10_000, 200
    code = (
        "import sys; from pathlib import Path; from numdrift.harness.runs.journal import Journal\n"
        "from numdrift.harness.drift.recorded_drift import common_digests, differing_tensors\n"
        "a, b = (Journal(Path(folder)) for folder in sys.argv[1:])\n"
        "pairs = common_digests(a, b)\n"
        "assert sum(not any(differing_tensors(x, y)) for _, x, y in pairs) == len(a.steps)\n"
        # ru_maxrss would include the memory of this process, from which the other one was forked.
        "print(*(line for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    with tempfile.TemporaryDirectory() as folder:
        for side in ("a", "b"):
            _write_journal(Path(folder, side), steps, tensors)
        size = sum(file.stat().st_size for file in Path(folder, "a").iterdir())
        command = [sys.executable, "-c", code, f"{folder}/a", f"{folder}/b"]
        seconds = [timed(command) for _ in range(pairs)]
        peak = _mib(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(
        f"journals {steps:,} steps x {tensors} tensors: compared in {statistics.median(seconds):.2f} s "
        f"({min(seconds):.2f} to {max(seconds):.2f}), peak {peak} MiB, "
        f"{1000 * size / steps / tensors / 1024:.1f} KiB of journal per tensor and 1,000 steps"
    )


def _write_journal(folder: Path, steps: int, tensors: int) -> None:
    """Write a journal with random digests of parameters and gradients, which is the same for equal sizes."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    log, digests = EventLog(folder / frames.EVENTS), FrameFile(folder / frames.DIGESTS)
    described = {"kind": "parameter", "shape": [64, 64], "dtype": "float32"}
    log.write("tensors", table=0, tensors=[{"name": f"layers.{i}.weight", **described} for i in range(tensors)])
    for step in range(steps):
        records = generator.standard_normal((2 * tensors, RECORD_BYTES // 8)).tobytes()
        digests.frame(0, step, [records], len(records))
        log.write("step", step=step, losses=[1 / (step + 1)], seconds=step / 100, generators={"torch": f"{step:016x}"})


def _median_step(run: Path) -> float:
    ended = [step.seconds for step in load_run(run).journal.steps]
    return statistics.median(b - a for a, b in pairwise(ended[10:]))


BENCHMARKS: dict[str, Callable[[int], None]] = {
    "overhead": overhead,
    "steps": steps,
    "memory": memory,
    "help": help_text,
    "swaps": swaps,
    "distance": distance,
    "journals": journals,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", default=list(BENCHMARKS), help=f"{', '.join(BENCHMARKS)} (default: all)")
    parser.add_argument("--pairs", type=int, default=5, help="number of runs of each command (default: 5)")
    args = parser.parse_args()
    unknown = [name for name in args.which if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")
    print(f"{os.cpu_count()} cores")
    for name in args.which:
        BENCHMARKS[name](args.pairs)


if __name__ == "__main__":
    main()
