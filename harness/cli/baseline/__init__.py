"""`numdrift baseline`: a gate that keeps a training as it is."""

from __future__ import annotations

import click

from ..program import LazyGroup

COMMANDS = {
    "save": "Train a script, and pack its baseline for the repository.",
    "check": "Train a script, and compare the training with its baseline.",
}

EXAMPLES = """\b
Examples:
  numdrift baseline save train.py --to baselines/train.zip -- --steps 6
  numdrift baseline check baselines/train.zip
  numdrift baseline check baselines/train.zip --junit report.xml
"""


@click.group(
    cls=LazyGroup,
    package=__package__,
    summaries=COMMANDS,
    epilog=EXAMPLES,
    help="Keep a training as it is: a baseline in the repository, and checks against it.",
)
def command() -> None:
    """Gather the commands."""
