"""`numdrift graph export`: writes every graph of a run as a file for Netron."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from ...api.chosen_runs import graphs_of_only_run
from ...errors import UsageError
from ...graphs.culprit_marks import marks_for
from ...graphs.export.onnx_model import export_graphs
from ..command_options import force_option, out_option, run_mode_option, target_argument
from ..output import console

EXAMPLES = """\b
Examples:
  numdrift graph export runs/sam_tanh/compile_main
  numdrift graph export runs/sam_tanh --mode lazy --to graphs

\b
Netron and other viewers show these ONNX models. The models show what was computed, but cannot be executed.
"""


@click.command(epilog=EXAMPLES, help="Write every graph of a run as an ONNX file.")
@target_argument
@run_mode_option
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="The folder to write to (default: the folder of the graphs' records).")  # fmt: skip
@out_option
@force_option
def command(target: str | None, mode: str | None, to: Path | None, out: Path, force: bool) -> int:
    graphs = graphs_of_only_run(target, out, mode)
    try:
        written = export_graphs(graphs, to, partial(marks_for, graphs.run), force=force or to is None)
    except OSError as error:
        raise UsageError(f"{error.filename or to} cannot be written: {error.strerror}") from None
    for path in written:
        console().print(f"Wrote {path}", soft_wrap=True)
    return 0
