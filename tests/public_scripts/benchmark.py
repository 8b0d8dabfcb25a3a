"""Try every public script of a folder: bare, in each mode, investigated, and with faults planted.

    scripts/bench public FOLDER                                  # writes docs/reference/public-scripts.md
    scripts/bench public FOLDER --only 'NNLM;BERT' --page -
    scripts/bench public FOLDER --keep runs/public.jsonl         # goes on with what was tried there

`tests/public_scripts/corpus.py` says what lies in the folder; `--python` is an interpreter that has torch, numdrift and what the
scripts import. Each script is copied, and nothing in the folder is changed.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from numdrift.harness.records.codec import read_fields

from .corpus import PublicScript, read_corpus
from .page import PAGE, page
from .trial import Tried, try_script


def main(argv: Sequence[str] | None = None) -> int:
    args = parse_arguments(argv)
    tried = read(args.keep) if args.keep else []
    for one in chosen(read_corpus(args.folder), args.only):
        if any(known.name == one.name for known in tried):
            continue
        with tempfile.TemporaryDirectory(prefix="public-") as scratch:
            found = try_script(one, args.folder, args.python, Path(scratch))
        tried.append(found)
        print(f"{found.name}: {', '.join(f'{mode} {ran.status}' for mode, ran in found.runs.items())}", flush=True)
        print(f"  {found.investigated.verdict}: {found.investigated.text}", flush=True)
        for name, fault in found.faults.items():
            print(
                f"  {name}: {'right' if fault.right else 'WRONG'}, {fault.verdict}, {'; '.join(fault.causes)}",
                flush=True,
            )
        if args.keep:
            with args.keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(found)) + "\n")
    text = page(tried, provenance())
    if args.page == Path("-"):
        print(text)
    else:
        args.page.write_text(text, encoding="utf-8")
        print(f"Wrote {args.page}")
    return 0


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench public", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="the folder of the scripts, with its corpus.json")
    parser.add_argument("--only", default="", help="names of scripts, divided by semicolons")
    parser.add_argument("--python", default=sys.executable, help="the interpreter (default: this one)")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep what was tried there, and go on with it")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page is written, `-` for standard output")
    return parser.parse_args(argv)


def chosen(corpus: Sequence[PublicScript], only: str) -> list[PublicScript]:
    names = [one.name for one in corpus]
    wanted = [name for name in only.split(";") if name] or names
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise SystemExit(f"there is no {unknown[0]!r}; there are {'; '.join(names)}")
    return [one for one in corpus if one.name in wanted]


def read(path: Path) -> list[Tried]:
    """What an interrupted benchmark has tried already."""
    if not path.exists():
        return []
    return [read_fields(Tried, json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def provenance() -> str:
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"measured on {date} with torch {importlib.metadata.version('torch')} on {len(os.sched_getaffinity(0))} cores"
    )


if __name__ == "__main__":
    sys.exit(main())
