"""`numdrift graph`: the graphs that runs recorded."""

from __future__ import annotations

from ..program import LazyGroup

COMMANDS = {
    "list": "List the graphs of a run, how often each one ran, and what ended it.",
    "open": "Open a graph in Netron, or draw it.",
    "diff": "Show where the graphs of two runs differ.",
    "export": "Write every graph of a run as a file for Netron.",
}

EXAMPLES = """\b
Examples:
  numdrift run train.py --modes cpu,compile,lazy --graphs -- --epochs 2
  numdrift graph list runs/train
  numdrift graph open runs/train --mode lazy --phase backward
  numdrift graph diff runs/train/compile runs/train/lazy
"""


command = LazyGroup(
    "graph",
    package=__name__,
    summaries=COMMANDS,
    epilog=EXAMPLES,
    help="List, open and export the graphs of a run, or compare the graphs of two runs.",
)
