"""The page of the ops that PyTorch's own samples call in two modes."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from numdrift.harness.records.results.findings import WITHIN
from numdrift.harness.records.results.op_table import FAILED, UNDECIDED, CheckedOp, OpTable

PAGE = Path(__file__).parents[2] / "docs/reference/ops.md"
SHRUNK = ("evidence/*/shrunk-1.py", "errors/*/shrunk-error.py")


def page(table: OpTable, folder: Path, samples: int, measured: str) -> str:
    """Return the page: how many ops got which verdict, and a section for each op that is not alike in both modes.

    `folder` is that of the results, `samples` the number of calls of each op, and `measured` says when and where.
    """
    rows = sorted(table.rows, key=lambda row: (row.verdict or UNDECIDED, row.op))
    counts = Counter(row.verdict or UNDECIDED for row in rows)
    minutes = sum(row.seconds for row in rows) / 60
    lines = [
        "# Ops of PyTorch",
        "",
        "This page shows what `numdrift check --ops .` finds when it calls the ops of PyTorch in mode `compile` and in",
        f"eager mode on the CPU. The inputs are the first {samples} float32 samples with which PyTorch's test suite calls",
        "each op (`OpInfo`); gradients are compared, too. All was",
        f"{measured}.",
        f"`scripts/bench ops` wrote this page; the checks of {len(rows)} ops took {minutes:.0f} minutes in all.",
        "",
        "| verdict | ops |",
        "|---|--:|",
        *(f"| `{verdict}` | {count} |" for verdict, count in counts.most_common()),
        "",
        "[The guide](../guide/check.md) explains the verdicts. An op without a finding may still have a fault: a few",
        "samples say nothing about inputs that are not among them.",
        "",
        "## Ops that do not agree",
        "",
    ]
    for row in rows:
        if row.verdict not in (*WITHIN, FAILED):
            lines += [f"### {row.op}", "", f"`{row.verdict or UNDECIDED}`: {in_markdown(row.text)}", ""]
            lines += script_of(row, folder)
    reasons = defaultdict[str, list[str]](list)
    for row in rows:
        if row.verdict == FAILED:
            reasons[in_markdown(row.text.replace(f"{folder}/", ""))].append(f"`{row.op}`")
    lines += ["## Ops that were not compared", "", "| reason | ops |", "|---|---|"]
    lines += [f"| {reason} | {', '.join(ops)} |" for reason, ops in reasons.items()]
    return "\n".join(lines) + "\n"


def in_markdown(text: str) -> str:
    """Return a text in one line, in which no character means something to Markdown."""
    return "".join(
        f"&#{ord(character)};" if character in "\\|*_<>`[]" else character for character in " ".join(text.split())
    )


def script_of(row: CheckedOp, folder: Path) -> list[str]:
    """Return the smallest script that shows the cause, as a block of code; nothing if there is none."""
    of_op = folder / Path(row.folder).name
    scripts = [path for place in SHRUNK for path in sorted(of_op.glob(place))] if row.folder else []
    return ["```python", scripts[0].read_text(encoding="utf-8").rstrip(), "```", ""] if scripts else []
