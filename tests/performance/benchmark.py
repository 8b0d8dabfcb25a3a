"""What an investigation takes beside the bare trainings of its modes, and beside PyTorch's CompilerBisector.

    scripts/bench investigate                  # writes docs/reference/performance.md
    scripts/bench investigate --long           # with the long training as well, which takes six minutes
    scripts/bench investigate --ordinary       # with the models of ordinary size as well, which take an hour
    scripts/bench investigate --only mnist,char_gpt --rounds 1 --page -
    scripts/bench investigate --keep runs/performance.jsonl    # goes on with what is measured there
    scripts/bench investigate --ordinary --cache runs/cache --rounds 0    # fills the cache, and measures nothing

Each round runs, one after the other, the bare script of each mode and the investigation of both, all of them from one Inductor
cache, which one round that does not count has filled. The investigation is `--no-confirm`: the verdict, the causes with
their proofs, and a script for each cause. The page is written anew after every workload.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import torch

from ..bisector.benchmark import bisector, measure, processor_seconds
from .memory import peak_of, peak_while
from .page import PAGE, PHASES, Taken, page
from .workloads import DEEP, ROOT, WORKLOADS, Bare, Workload

BISECTED = [sys.executable, "-m", "torch._inductor.compiler_bisector", "run", sys.executable]
SELDOM = 1.0
"""Seconds between two looks at the memory of what is timed."""

TEST = ["tests/bisector/good_or_bad.py", "--steps", "10"]


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    taken = read(args.keep) if args.keep else []
    with tempfile.TemporaryDirectory() as folder:
        cache = args.cache or Path(folder)
        for workload in args.workloads:
            known = {(one.round, one.way) for one in taken if one.workload == workload.name}
            rounds = min(1, args.rounds) if workload.long or workload.ordinary else args.rounds
            missing = [number for number in range(rounds) if (number, "numdrift") not in known]
            filled = cache / f"{workload.name}.filled"
            if (missing or not rounds) and workload.compiles and not workload.long and not filled.exists():
                one_round(workload, -1, cache)
                filled.touch()
            for number in missing:
                keep(one_round(workload, number, cache), taken, args)
        if args.memory and not any(one.workload == DEEP.name for one in taken):
            keep([deep(cache)], taken, args)
    if args.page != Path("-"):
        print(f"Wrote {args.page}")
    return 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench investigate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [one.name for one in WORKLOADS]
    parser.add_argument("--rounds", type=int, default=5, help="how often each is run, default 5; the long one once")
    parser.add_argument("--long", action="store_true", help="also the long training")
    parser.add_argument("--ordinary", action="store_true", help="also the models of ordinary size, each once")
    parser.add_argument(
        "--only", default="", help=f"of {', '.join([*names, 'memory'])} (default: all but the long one)"
    )
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep what is measured there, and go on with it")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="keep Inductor's cache there, for a later call")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page is written, `-` for standard output")
    args = parser.parse_args(argv)
    only = [name for name in args.only.split(",") if name]
    unknown = [name for name in only if name not in (*names, "memory")]
    if unknown:
        parser.error(f"there is no workload {unknown[0]!r}; there are {', '.join([*names, 'memory'])}")
    args.workloads = [
        one
        for one in WORKLOADS
        if (one.name in only if only else (args.long or not one.long) and (args.ordinary or not one.ordinary))
    ]
    args.memory = ("memory" in only or not only) and args.rounds > 0
    if args.cache:
        args.cache = args.cache.resolve()
        args.cache.mkdir(parents=True, exist_ok=True)
    return args


def keep(made: Sequence[Taken], taken: list[Taken], args: argparse.Namespace) -> None:
    """Tell what was measured, keep it, and write the page of all that is there."""
    for one in made:
        print(f"round {one.round}: {one.line()}", flush=True)
    taken += made
    if args.keep:
        with args.keep.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(one)) + "\n" for one in made)
    text = page(taken, provenance())
    if args.page == Path("-"):
        print(text)
    else:
        args.page.write_text(text, encoding="utf-8")


def read(path: Path) -> list[Taken]:
    """What an interrupted benchmark has measured already."""
    if not path.exists():
        return []
    return [Taken(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def one_round(workload: Workload, number: int, cache: Path) -> list[Taken]:
    """The bare scripts, the investigation, and the bisector where it is compared with that, one after the other."""
    made = [bare(workload, one, number, cache) for one in workload.bare]
    with tempfile.TemporaryDirectory() as folder:
        made.append(investigated(workload, number, cache, Path(folder)))
    if workload.times_bisector is not None and number >= 0:
        # `run` removes the whole folder of its Inductor cache, so it has one of its own
        way = bisector("bisector", [*BISECTED, *TEST], ("cold",), 10)
        one = measure(way, number, "cold", cache / "bisector")
        made.append(Taken(workload.name, number, one.way, one.seconds, one.processor, one.runs, one.steps))
    return made


def bare(workload: Workload, one: Bare, number: int, cache: Path) -> Taken:
    command = [sys.executable, workload.script, *workload.arguments, *one.arguments]
    seconds, processor, *_, peak = timed(
        command, environment(cache, one.variables), memory=workload.ordinary is not None
    )
    return Taken(workload.name, number, f"bare {workload.bare.index(one)}", seconds, processor, 1, 0, gib=peak)


def investigated(workload: Workload, number: int, cache: Path, folder: Path) -> Taken:
    command = investigation(workload, folder)
    is_ordinary = workload.ordinary is not None
    seconds, processor, written, told, peak = timed(command, environment(cache), (0, 1), memory=is_ordinary)
    found = json.loads(written)
    [pair] = found["pairs"]
    first = next((f"{one['op']} ({one['phase']})" for one in pair["culprits"] if one["status"] == "culprit"), "none")
    counts = found["training_runs"], found["steps_trained"]
    phases = phases_of(told, seconds)
    files = [file for file in folder.rglob("*") if file.is_file()] if is_ordinary else []
    sizes = {file.stat().st_ino: file.stat().st_size / 2**30 for file in files}  # links to one file take its room once
    state = max((sizes[file.stat().st_ino] for file in files if file.parent.name == "states"), default=None)
    made = Taken(workload.name, number, "numdrift", seconds, processor, *counts, pair["verdict"], first, phases=phases)
    return replace(made, gib=peak, disk=sum(sizes.values()) or None, state=state)


def investigation(workload: Workload, folder: Path) -> list[str]:
    modes = [word for mode in workload.modes for word in ("--mode", mode)]
    asked = ["--out", str(folder), "--no-confirm", "--json", "-"]
    command = [sys.executable, "-m", "numdrift", "investigate", workload.script, *modes, *asked]
    return [*command, "--", *workload.arguments]


def environment(cache: Path, variables: Mapping[str, str] | None = None) -> dict[str, str]:
    return os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor")} | dict(variables or {})


def timed(
    command: Sequence[str], env: Mapping[str, str], ends: Sequence[int] = (0,), *, memory: bool = False
) -> tuple[float, float, str, list[tuple[float, str]], float | None]:
    """Seconds, processor seconds of all its processes, what it printed, the lines of its standard error with the seconds
    after which they came, and the peak of its `memory` in GiB, if that is asked. Raises SystemExit where it fails."""
    began, used = time.perf_counter(), processor_seconds()
    with (
        tempfile.TemporaryFile("w+") as output,
        ThreadPoolExecutor(1) as beside,
        subprocess.Popen(command, cwd=ROOT, env=env, stdout=output, stderr=subprocess.PIPE, text=True) as process,
    ):
        peak = beside.submit(peak_while, process, SELDOM) if memory else None
        assert process.stderr is not None
        told = [(time.perf_counter() - began, line) for line in process.stderr]
        code = process.wait()
        seconds, processor = time.perf_counter() - began, processor_seconds() - used
        if code not in ends:
            last = "".join(line for _, line in told)[-2000:]
            raise SystemExit(f"{' '.join(command)} ended with exit code {code}: {last}")
        output.seek(0)
        return seconds, processor, output.read(), told, None if peak is None else peak.result() / 2**30


VERDICT = re.compile(r"\S+ against \S+: \S+: ")


def phases_of(told: Sequence[tuple[float, str]], seconds: float) -> dict[str, float]:
    """How long each of PHASES took, by what an investigation has printed; empty where it did not come to all of them."""
    judged = next((at for at, line in told if VERDICT.match(line)), None)
    if judged is None:
        return {}
    ends = (
        next((at for at, line in told if line.startswith("each mode once more")), None),
        max((at for at, line in told if at < judged and ": ended, " in line), default=None),
        judged,
        next((at for at, line in told if "different bits, because of" in line), None),
        seconds,
    )
    known = [one for one in ends if one is not None]
    if len(known) < len(PHASES) or known != sorted(known):
        return {}
    return {name: end - begin for name, begin, end in zip(PHASES, [0.0, *known], known, strict=False)}


def deep(cache: Path) -> Taken:
    """The peak of the memory of all processes that investigate a large model."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        peak, code = peak_of(investigation(DEEP, Path(folder)), environment(cache), ROOT)
        if code not in (0, 1):
            raise SystemExit(f"the investigation of {DEEP.name} ended with exit code {code}")
    return Taken(DEEP.name, 0, "numdrift", time.perf_counter() - began, 0.0, 0, 0, gib=peak / 2**30)


def provenance() -> str:
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    processor = models[0].partition(":")[2].strip() if models else "a processor that does not tell its name"
    version = importlib.metadata.version("torch")
    cores, threads = len(os.sched_getaffinity(0)), torch.get_num_threads()
    return f"measured on {date} with torch {version} on {cores} cores ({processor}), with {threads} threads per process"


if __name__ == "__main__":
    sys.exit(main())
