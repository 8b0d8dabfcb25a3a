"""`numdrift watch`: records a training that runs as if it were not recorded."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from ..launch.attached_process import replace_this_process, signals_held
from ..launch.watched_script import watched_script
from . import command_options as options
from .output import require_new, write_json

DEFAULT_STEPS = "0-99,100-/100,spikes"
DEFAULT_OVERHEAD = "1%"

EXAMPLES = """\b
Examples:
  numdrift watch train.py --epochs 90
  numdrift watch python -u train.py --epochs 90
  numdrift watch --name prod python -m package.train --config large.yaml
  torchrun --nproc-per-node 8 -m numdrift watch --name prod train.py
  numdrift compare runs/prod/watch runs/prod/watch_2

\b
The options of numdrift come before the script; all words after the script are its own. The script gets this command's
input, output, terminal and signals, and runs in the current folder. Nothing is seeded and nothing is moved to another
device. The command ends with the script's exit code, or 128 + N if signal N ended it. If the loss spiked or a number
is no longer finite, a few lines on standard error say so at the end. Where torchrun, srun or mpirun has started the
command several times, one process is recorded, and all others become the script.
"""


@click.command(
    epilog=EXAMPLES,
    help="Run a training as it is, and record its losses, a sample of its parameters and gradients, and its spikes.",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[python] SCRIPT [ARGS]...")
@options.name_option
@click.option("-m", "--module", metavar="NAME", help="Run a module instead of SCRIPT, as `python -m NAME` does.")
@options.recorded_option("steps", default=DEFAULT_STEPS, shows_default=True)
@options.recorded_option("overhead", default=DEFAULT_OVERHEAD, shows_default=True)
@click.option(
    "--rank",
    type=click.IntRange(min=0),
    metavar="R",
    help="The process to record, if a launcher starts several (default: 0).",
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing, whatever happens.")
@options.out_option
@options.force_option
@click.option("--json", "json_path", metavar="PATH", help="Write what happened to a file, as JSON.")
def command(
    words: tuple[str, ...],
    module: str | None,
    rank: int | None,
    quiet: bool,
    json_path: str | None,
    **settings: Any,
) -> int:
    script = watched_script(words, module)
    with signals_held():
        # imported only now: a library that it imports starts a thread, which would not hold signals
        watching: Any = importlib.import_module("numdrift.harness.api.watching")
        task, is_recorded = watching.task_to_watch(rank)
        if not is_recorded:
            replace_this_process(watching.plain_command(script), os.environ)
        require_new(json_path, force=settings["force"])
        request = watching.WatchRequest.of(None, (), (), settings)
        watched = watching.watch(script, request, task)
        for line in () if quiet else watched.lines(script):
            print(f"numdrift: {line}", file=sys.stderr)
        if json_path:
            write_json(json_path, watched.to_json())
    return int(watched.exit_code)
