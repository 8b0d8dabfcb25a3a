"""`numdrift plot`: draws loss curves and their drift, the envelope of rounding, tensors' drift, and step times."""

from __future__ import annotations

from pathlib import Path

import click

from ..api.plotting import SUBJECTS, drawn, write_figures
from .command_options import force_option, out_option
from .output import console

EXAMPLES = """\b
Examples:
  numdrift plot runs/sam_tanh --suffix main
  numdrift plot --suffix before --suffix after
  numdrift plot sam_tanh --what drift
  numdrift plot sam_tanh --what envelope
  numdrift plot sam_tanh --what timeline

\b
loss      loss curves of the batches, and their drift
envelope  a mode's loss, and the range of losses that one-ULP changes of the initial parameters cause; needs
          `numdrift investigate --envelope 8`
drift     the score of every tensor at every step that `numdrift investigate` compared
timeline  the time that each mode spends per step on compiling, executing and transferring; needs
          `numdrift run --metrics`
envelope and drift draw one picture for each pair of modes.
"""


@click.command(epilog=EXAMPLES, help="Plot the results of an investigation (default: the newest).")
@click.argument("investigation", required=False)
@click.option("--what", type=click.Choice(SUBJECTS), default=SUBJECTS[0], show_default=True, help="What to draw.")
@click.option(
    "--suffix", "suffixes", multiple=True, metavar="TAG", help="Draw the losses of this batch; may be repeated."
)
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="PATH",
    help="The file to write, without a file extension (default: <SUFFIX>_loss_curve, <SUFFIX>_timeline, "
    "<A>_vs_<B>_envelope or <A>_vs_<B>_drift, in the investigation's folder).",
)  # fmt: skip
@out_option
@force_option
def command(
    investigation: str | None, what: str, suffixes: tuple[str, ...], output: Path | None, out: Path, force: bool
) -> int:
    figures, notes = drawn(investigation, out, what, suffixes, output)
    for note in notes:
        console(stderr=True).print(note, soft_wrap=True)
    for path in write_figures(figures, force=force):
        console().print(f"Wrote {path}", soft_wrap=True)
    return 0
