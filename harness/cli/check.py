"""`numdrift check`: compares calls of a function or module in several modes, and prints what differs and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from ..api.checking import CheckRequest
from ..api.investigating import DEFAULT_MODES
from ..api.op_batching import OpEngine, ops_checked_on_engine
from ..api.op_checking import SAMPLES, ops_checked
from ..engines.engine import LOCAL, engine_words
from ..errors import UsageError
from ..records.modes.mode_spec import parse_modes
from ..records.results.op_table import UNDECIDED
from ..records.run.call_subject import target_of
from . import command_options as options
from .investigate import CommandLineProgress, check_calls, frames_option, suspects_option
from .on_engine import EngineChoice, engine_options
from .output import INTERRUPTED, console, number, require_new, table, write_json

WIDTH = 100
"""The number of characters of an answer in a table."""

EXAMPLES = """\b
Examples:
  numdrift check issue.py
  numdrift check ops.py:scaled --inputs "randn(4, 32), randn(32, 8)"
  numdrift check ops.py:Block --modes cpu,compile,lazy --seeds 4
  numdrift check ops.py:scaled --load inputs.pt --mode cpu --mode "plain=cpu,kernel.gelu=decomposed"
  numdrift check issue.py --markdown issue.md --force
  numdrift check issue.py --shrink
  numdrift check --ops "^tanh$|floor" --samples 2
  numdrift check --ops . --engine ray --engine-option address=auto

\b
A file without :NAME is run as it is, without compiling anything. The calls of what it compiles are then made in every
mode, on the same inputs. With FILE:NAME, the inputs come from --inputs, from --load, or from inputs() or get_inputs()
in the file; a class is made with the arguments of get_init_inputs().
Exit codes: 0 the modes compute the same, except for rounding, 1 they do not, 2 wrong usage, 3 a run failed.
"""


@click.command(
    epilog=EXAMPLES,
    help="Compare the calls of TARGET in several modes: a file that compiles and calls something, or FILE:NAME.",
)
@click.argument("target", required=False)
@click.option(
    "--ops",
    "pattern",
    metavar="REGEX",
    help="In place of TARGET: each op of torch whose name matches, with PyTorch's samples.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=SAMPLES,
    show_default=True,
    help="With --ops: the samples of each op.",
)
@options.options_of(CheckRequest, "inputs", "load", "input_seeds", "edges", "gradients")
@options.listed_modes_option(DEFAULT_MODES)
@options.mode_option
@options.options_of(CheckRequest, "dynamic", "shrink", "localize")
@click.option("--quick", is_flag=True, help="Find only the verdict, not the causes (the same as --localize none).")
@options.options_of(CheckRequest, "knobs", "poison", "budget", "timeout", "jobs", "name")
@click.option("--markdown", "markdown", metavar="PATH", help="Write the text of an issue (- for stdout).")
@suspects_option
@frames_option
@engine_options
@options.quiet_option
@options.out_option
@options.force_option
@options.json_option
def command(
    target: str | None,
    pattern: str | None,
    samples: int,
    choice: EngineChoice,
    listed: str | None,
    single: tuple[str, ...],
    quick: bool,
    markdown: str | None,
    suspects: bool,
    frames: bool,
    quiet: bool,
    json_path: str | None,
    **settings: Any,
) -> int:
    modes = parse_modes(listed, single) if listed or single else ()
    further: dict[str, Any] = {"confirm": False} | ({"localize": "none"} if quick else {})
    request = CheckRequest.of(target, modes, (), settings | further)
    for path in (json_path, markdown):
        require_new(path, force=request.force)
    if pattern is not None:
        if target is not None:
            raise UsageError("--ops takes the place of TARGET: use one of them")
        if choice.needs or choice.shared:
            flag = "--needs" if choice.needs else "--shared"
            raise UsageError(f"{flag} is for one TARGET, not for --ops")
        of_engine = None
        if choice.engine != LOCAL:
            stated = settings | ({"localize": "none"} if quick else {})
            of_engine = OpEngine(choice.engine, engine_words(choice.options), stated)
        return _check_ops(replace(request, input_seeds=samples), pattern, of_engine, json_path, quiet=quiet)
    if choice.is_elsewhere():
        of_file = replace(request, script=str(target_of(target)[0])) if target is not None else request
        return choice.execute(of_file)
    return check_calls(request, json_path, markdown, quiet=quiet, suspects=suspects, frames=frames)


def _check_ops(
    request: CheckRequest, pattern: str, engine: OpEngine | None, json_path: str | None, *, quiet: bool
) -> int:
    """Check ops, and print each as it is done, then those that differ by more than rounding."""
    progress = CommandLineProgress(quiet=quiet)
    try:
        if engine is None:
            found = ops_checked(request, pattern, progress)
        else:
            found = ops_checked_on_engine(request, pattern, engine, progress)
    except KeyboardInterrupt:
        console(stderr=True).print("numdrift: interrupted. The same command goes on from there.", soft_wrap=True)
        return INTERRUPTED
    if json_path:
        write_json(json_path, found.to_json(), force=request.force)
    if json_path != "-" and not quiet:
        out = console()
        out.print(f"{found.answer}.\n", soft_wrap=True)
        rows = table("op", "mode", "verdict", ">z", "first cause", "answer")
        for row in found.rows:
            if row.exit_code:
                rows.add_row(row.op, row.mode, row.verdict or UNDECIDED, number(row.z), row.cause, row.text[:WIDTH])
        if rows.row_count:
            out.print(rows)
        reused = f", {found.reused} of them checked before" if found.reused else ""
        out.print(f"\n{len(found.rows)} rows{reused}, {found.seconds:.1f} s", soft_wrap=True)
    return found.exit_code
