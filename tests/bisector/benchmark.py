"""numdrift beside PyTorch's CompilerBisector on the tanh case: seconds, runs, and what each names.

    scripts/bench bisector             # writes docs/reference/bisector.md
    scripts/bench bisector --turns 5
    scripts/bench bisector --keep runs/bisector.jsonl    # goes on with what is measured there

The page is written anew after every measurement, so an interrupted benchmark leaves what it has.
Each turn runs every way once, one after the other, each kind of way in an Inductor cache of its own: first an empty
one (cold), then the same again (warm). The bisector's `run` empties the cache itself, so it is always cold.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .page import CAUSES_ALONE, OURS, PAGE, Measured, both_sides, page

ROOT = Path(__file__).parents[2]
TEST = "tests/bisector/good_or_bad.py"
RESULT = re.compile(r"^Bisection complete: (.*)$", re.MULTILINE)
FIELD = re.compile(r"(backend|subsystem|debug_info)=(?:'([^']*)'|\"([^\"]*)\")")


@dataclass(frozen=True, slots=True)
class Way:
    """A way to ask for the cause. `command(folder)` may leave files there; `read(stdout, folder)` gives the number of runs,
    the steps that they trained, and what is named."""

    name: str
    caches: Sequence[str]
    command: Callable[[Path], list[str]]
    read: Callable[[str, Path], tuple[int, int, list[str]]]


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    measured = read(args.keep) if args.keep else []
    for turn, way in order(args):
        there = sum((one.turn, one.way) == (turn, way.name) for one in measured)
        if there < len(way.caches):
            made = in_own_cache(way, turn)
            measured += made
            if args.keep:
                with args.keep.open("a") as file:
                    file.writelines(json.dumps(asdict(one)) + "\n" for one in made)
        if both_sides(measured):
            PAGE.write_text(page(measured, args.steps, provenance()), encoding="utf-8")
    print(f"Wrote {PAGE.relative_to(ROOT)}")
    return 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench bisector",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--turns", type=int, default=3, help="how often each way is run, default 3")
    parser.add_argument("--steps", type=int, default=10, help="steps of every training, default 10")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep what is measured there, and go on with it")
    return parser.parse_args(argv)


def order(args: argparse.Namespace) -> list[tuple[int, Way]]:
    """Every way once a turn, one after the other, and the other test once."""
    compared = [(turn, way) for turn in range(args.turns) for way in ways(args.steps)]
    return compared + [(0, way) for way in further_ways(args.steps)]


def read(path: Path) -> list[Measured]:
    """What an interrupted benchmark has measured already."""
    if not path.exists():
        return []
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [Measured(**one | {"named": tuple(one["named"])}) for one in found]


def provenance() -> str:
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    version = importlib.metadata.version("torch")
    return f"measured on {date} with torch {version} on {os.cpu_count()} cores"


def ways(steps: int) -> list[Way]:
    """The three that are compared."""
    test = [sys.executable, TEST, "--steps", str(steps)]
    run = [sys.executable, "-m", "torch._inductor.compiler_bisector", "run", *test]
    return [
        numdrift(OURS, ("cold", "warm"), steps),
        numdrift(CAUSES_ALONE, ("cold", "warm"), steps, "--no-scripts --no-confirm"),
        bisector("bisector, `run`", run, ("cold",), steps),
        bisector("bisector, in process", [*test, "--in-process"], ("cold", "warm"), steps),
    ]


def further_ways(steps: int) -> list[Way]:
    """The bisector with another test, once."""
    test = [sys.executable, TEST, "--steps", str(steps), "--in-process", "--allow"]
    return [bisector("tolerance", [*test, "tolerance"], ("cold",), steps)]


def numdrift(name: str, caches: Sequence[str], steps: int, options: str = "") -> Way:
    command = [sys.executable, "-m", "numdrift", "investigate", "reproducers/sam_tanh.py"]
    what = f"--modes cpu,compile {options} --json - -- --epochs {steps}"
    return Way(name, caches, lambda folder: [*command, "--out", str(folder), *what.split()], read_investigation)


def bisector(name: str, command: Sequence[str], caches: Sequence[str], steps: int) -> Way:
    def read(stdout: str, folder: Path) -> tuple[int, int, list[str]]:
        trained = [int(line.split()[-1]) for line in (folder / "log").read_text().splitlines()]
        return len(trained), steps * sum(trained), read_bisection(stdout)

    return Way(name, caches, lambda folder: [*command, "--log", str(folder / "log")], read)


def in_own_cache(way: Way, turn: int) -> list[Measured]:
    """Run it in an empty Inductor cache, and again in what that leaves."""
    found = []
    with tempfile.TemporaryDirectory() as cache:
        for temperature in way.caches:
            one = measure(way, turn, temperature, Path(cache, "inductor"))
            print(f"turn {turn}: {one.line()}", flush=True)
            found.append(one)
    return found


def measure(way: Way, turn: int, temperature: str, cache: Path) -> Measured:
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache), "OMP_WAIT_POLICY": "passive"}
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began, used = time.perf_counter(), processor_seconds()
        done = subprocess.run(
            way.command(folder), cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        seconds, processor = time.perf_counter() - began, processor_seconds() - used
        runs, steps, named = way.read(done.stdout, folder)
    named = named or [f"nothing: {last_line(done.stderr)}"]
    return Measured(turn, way.name, temperature, seconds, processor, runs, steps, tuple(named), cache.exists())


def processor_seconds() -> float:
    """Of all processes that ended here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def read_investigation(stdout: str, folder: Path) -> tuple[int, int, list[str]]:
    if not stdout:
        return 0, 0, []
    found = json.loads(stdout)
    causes = [one for pair in found["pairs"] for one in pair["culprits"]]
    return found["training_runs"], found["steps_trained"], [cause_words(one) for one in causes]


def cause_words(culprit: dict[str, Any]) -> str:
    """`aten.sum (backward, 6 sites, 92 % of the drift)`; a suspect is called one."""
    if "share_of_drift" not in culprit:
        return str(culprit["text"])
    share = f"{100 * (culprit['share_of_drift'] or 0):.0f} % of the drift"
    words = f"`{culprit['op']}` ({culprit['phase']}, {culprit['sites']} sites, {share})"
    return words if culprit["status"] == "culprit" else f"suspect {words}"


def read_bisection(stdout: str) -> list[str]:
    """What the bisector's last line names; nothing where it found no issue or printed no such line."""
    results = RESULT.findall(stdout)
    if not results:
        return []
    fields = {name: one or other for name, one, other in FIELD.findall(results[-1])}
    if not fields:
        return [str(results[-1])]
    return [", ".join(f"{name} `{value}`" for name, value in fields.items())]


def last_line(text: str) -> str:
    return next(iter(reversed(text.strip().splitlines())), "no output")


if __name__ == "__main__":
    sys.exit(main())
