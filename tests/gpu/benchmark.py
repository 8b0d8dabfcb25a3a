"""One command for a machine with a GPU: a fixed list of investigations and measurements, each compared with what is expected.

    scripts/gpu                                        # all of it, 4 to 5 minutes on 16 cores; results in runs/gpu
    scripts/gpu --out OUT --page docs/reference/gpu.md # and the page
    scripts/gpu --only tf32,nan --jobs 2
    scripts/gpu --resume                               # the rows that the last run has not, or not as expected
    scripts/gpu --device standin --jobs 1              # a dry run on the stand-in of the tests, without a GPU
    scripts/gpu --show OUT --page gpu.md               # run nothing: the table and the page of what OUT has
    scripts/gpu --list

Each row is in OUT/results.json as soon as it is done; OUT/evidence.zip (evidence-2.zip of a second run) has what its commands said and found. Exit code 0
only where every row is as expected.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.console import Console

from .device import CUDA, STANDIN
from .investigations import INVESTIGATIONS
from .machine import facts
from .measurements import MEASUREMENTS
from .outcome import Results, read_results
from .page import page
from .round import run_list
from .rows import Row
from .shown import table_of

ROWS: tuple[Row, ...] = (*INVESTIGATIONS, *MEASUREMENTS)
RESULTS = "results.json"
WIDTH = 200
"""Columns of the table where no terminal says how many there are."""


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    if args.list:
        for row in ROWS:
            needs = f" (needs {', '.join(row.needs)})" if row.needs else ""
            print(f"{row.name:<18} {row.what}: {', '.join(row.modes)}{needs}")
        return 0
    results = read_results(args.show / RESULTS) if args.show else run(args)
    print(lines_of(results))
    print(results.count())
    if args.page:
        args.page.write_text(page(results), encoding="utf-8")
        print(f"Wrote {args.page}")
    return 0 if results.is_as_expected else 1


def lines_of(results: Results) -> str:
    """Return the table, without blanks at the ends of its lines: of a long output only the end may be seen."""
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else WIDTH, force_terminal=terminal, highlight=False)
    with console.capture() as captured:
        console.print(table_of(results))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def run(args: argparse.Namespace) -> Results:
    """Run the rows; what runs leave lies in a folder that goes, unless it is named."""
    signal.signal(signal.SIGTERM, _interrupt)
    args.out.mkdir(parents=True, exist_ok=True)
    work = args.work or Path(tempfile.mkdtemp(prefix="numdrift-gpu-"))
    work.mkdir(parents=True, exist_ok=True)
    try:
        machine = facts(args.device, args.jobs)
        known = Results(machine)
        if args.resume and (args.out / RESULTS).exists():
            known = read_results(args.out / RESULTS).to_go_on_with(machine)
        order = [row.name for row in ROWS]
        return run_list(args.rows, args.device, args.out, work, known, order=order, jobs=args.jobs, seconds=args.limit)
    finally:
        if args.work is None:
            shutil.rmtree(work, ignore_errors=True)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--device", choices=(CUDA, STANDIN), default=CUDA, help="default cuda")
    parser.add_argument("--only", default="", metavar="NAME,...", help="rows of the list (default: all)")
    parser.add_argument(
        "--jobs", type=int, default=min(6, cores), help="rows at a time, default 6, or as many as cores"
    )
    parser.add_argument(
        "--limit", type=float, metavar="SECONDS", help="for all of it (default 480, on the stand-in none)"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="folder of the results, default runs/gpu")
    parser.add_argument(
        "--work", type=Path, metavar="FOLDER", help="where runs go, and stay (default: a temporary folder)"
    )
    parser.add_argument("--resume", action="store_true", help="run only what OUT has not, or not as expected")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page there")
    parser.add_argument("--show", type=Path, metavar="OUT", help="run nothing, and show what this folder has")
    parser.add_argument("--list", action="store_true", help="name the rows")
    args = parser.parse_args(argv)
    names = [name for name in args.only.split(",") if name]
    known = {row.name: row for row in ROWS}
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"there is no row {unknown[0]!r}; there are {', '.join(known)}")
    if args.jobs < 1:
        parser.error(f"--jobs must be at least 1, not {args.jobs}")
    args.rows = [row for row in ROWS if not names or row.name in names]
    if args.limit is None:
        args.limit = 480.0 if args.device == CUDA else float("inf")
    return args


if __name__ == "__main__":
    sys.exit(main())
