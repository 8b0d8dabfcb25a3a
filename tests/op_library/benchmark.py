"""`numdrift check --ops` on all ops of PyTorch's own samples, compiled against eager, and a page of what it finds.

scripts/bench ops                            # 677 ops, an hour and a half; writes docs/reference/ops.md
scripts/bench ops --keep runs/ops            # leaves the results there, and goes on with them
scripts/bench ops --keep runs/ops --read     # only writes the page again
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from numdrift.harness.records.codec import read_fields
from numdrift.harness.records.results.op_table import OPS, OpTable

from ..upstream.benchmark import provenance
from .page import PAGE, page


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench ops", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ops", default=".", metavar="REGEX", help="only ops whose name matches (default: all)")
    parser.add_argument("--samples", type=int, default=2, help="samples of each op (default: 2)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="the folder of the results")
    parser.add_argument("--read", action="store_true", help="run nothing, and only read the results in --keep")
    parser.add_argument("--page", type=Path, default=PAGE, help="where the page is written, `-` for standard output")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        if not args.read:
            command = ["check", "--ops", args.ops, "--samples", str(args.samples), "--shrink", "--out", str(folder)]
            done = subprocess.run([sys.executable, "-m", "numdrift", *command], check=False)
            if done.returncode not in (0, 1, 3):
                return done.returncode
        text = page(table_in(folder / "ops"), folder / "ops", args.samples, provenance())
    if args.page == Path("-"):
        print(text, end="")
    else:
        args.page.write_text(text, encoding="utf-8")
        subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(args.page)], check=False)  # its scripts
        print(f"Wrote {args.page}")
    return 0


def table_in(folder: Path) -> OpTable:
    """Return the table that `numdrift check --ops` has written."""
    return read_fields(OpTable, json.loads((folder / OPS).read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
