"""Write the golden files again: the answers of the cases as the numdrift of this Python gives them.

    python -m tests.golden.make                                   # all cases, into tests/golden
    python -m tests.golden.make sam_tanh_lazy ranks_fault         # some of them
    PYTHONPATH=/another/checkout/src python -m tests.golden.make --to /tmp/other   # of another checkout, elsewhere

It is run from the root of the repository. On one machine whole digits can be compared, which `--exact` leaves:

    python -m tests.golden.make --exact --to /tmp/before --runs /tmp/runs_before
    python -m tests.golden.make --exact --to /tmp/after
    diff -r /tmp/before /tmp/after

`--runs` keeps what was run: `investigation.json` is in `CASE/runs/case`, `stdout` and `stderr` in `CASE`. With `--read`
nothing is run: the files are written from what `--runs` has kept, after the normalisation was changed, say.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from .cases import CASES, Case, Said, run_case
from .normalise import as_json, normalised, normalised_text

GOLDENS = Path(__file__).parent


def write(case: Case, said: Said, folder: Path, *, exact: bool = False) -> None:
    """Write the two golden files of a case."""
    folder.mkdir(parents=True, exist_ok=True)
    content, text = normalised(said, exact=exact), normalised_text(case, said, exact=exact)
    (folder / f"{case.name}.json").write_text(as_json(content), encoding="utf-8")
    (folder / f"{case.name}.txt").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; default all")
    parser.add_argument("--to", type=Path, default=GOLDENS, help="folder to write to, default tests/golden")
    parser.add_argument("--exact", action="store_true", help="keep the digits")
    parser.add_argument("--runs", type=Path, help="keep the runs in this folder")
    parser.add_argument("--read", action="store_true", help="run nothing, read what --runs has kept")
    args = parser.parse_args()
    unknown = sorted(set(args.cases) - set(CASES))
    if unknown:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    if args.exact and args.to == GOLDENS:
        parser.error("--exact is for a folder of your own: give --to")
    if args.read and args.runs is None:
        parser.error("--read needs --runs")
    with tempfile.TemporaryDirectory() as temporary:
        for name in args.cases or CASES:
            folder, began = Path(args.runs or temporary).absolute() / name, time.monotonic()
            if not args.read:
                shutil.rmtree(folder, ignore_errors=True)
                run_case(CASES[name], folder)
            write(CASES[name], Said.read(folder), args.to, exact=args.exact)
            print(f"{name}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
