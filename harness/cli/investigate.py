"""`numdrift investigate`: is the drift more than rounding, and which side is right?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from ..investigate.investigation_plan import (
    DEFAULT_STATE_BUDGET,
    InvestigationPlan,
    changes_nothing,
    compared_modes,
    recorded_runs,
)
from ..investigate.laboratory import Laboratory
from ..investigate.method import investigate, investigate_runs
from ..launch.batch_kernels import stated_kernel
from ..launch.reproducer import Reproducer, asked_for
from ..launch.supervise import Reporter
from ..records.mode_spec import ModeSpec, parse_modes
from ..records.step_selection import StepSelection
from ..runs.run_layout import Investigation, choose_investigation
from .command_options import (
    force_option,
    json_option,
    module_option,
    nproc_option,
    out_option,
    script_argument,
    strict_option,
)
from .findings_table import show
from .output import console, write_json
from .progress import reporter_for
from .understood_lines import UnderstoodLines

DEFAULT_MODES = "cpu,compile"

EXAMPLES = """\b
Examples:
  numdrift investigate train.py -- --epochs 10
  numdrift investigate train.py --modes cpu,compile,lazy --json -
  numdrift investigate train.py --mode cpu --mode "new=cpu,env.ATTENTION=fused" --name attention
  numdrift investigate train.py --modes cpu,compile --envelope 8 --seeds 12
  numdrift investigate train.py --modes cpu,lazy --partition-bisect
  numdrift investigate train.py --modes cpu,compile --nproc 2
  numdrift investigate train.py --modes cpu --nproc 2 --against-single
  numdrift investigate runs/train --suffix main
  numdrift investigate -m package.train --modes cpu,compile -- --epochs 10

\b
The first mode is the reference. Every mode runs twice (the control), then once more with chosen steps started
from the reference's state. A drift counts as more than rounding when one step's result is 16 times farther away
than random rounding of the same step takes it. What was run already in the investigation is not run again.
Exit codes: 0 no drift beyond rounding, 1 drift beyond rounding or a verdict that needs a person, 2 wrong usage,
3 a run failed.
"""

knobs_option = click.option(
    "--knobs",
    is_flag=True,
    help="Also say which stage and which setting of the compiler makes the drift (without it: where no op does).",
)

partition_bisect_option = click.option(
    "--partition-bisect",
    is_flag=True,
    help="Also put ever smaller parts of the model on the mode's backend, the rest on the CPU, to find what carries the drift.",
)


@click.command(
    epilog=EXAMPLES,
    help="Run SCRIPT in some modes and decide whether they differ by more than rounding. SCRIPT may also be an "
    "investigation that `numdrift run` has recorded.",
)
@script_argument
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")
@click.option("--modes", "listed", metavar="LIST", help=f"Modes by base (default {DEFAULT_MODES}).")
@click.option("--mode", "single", multiple=True, metavar="SPEC", help="One mode in full; may be repeated.")
@click.option(
    "--name", help="Name of the investigation (default: the script's, numbered); one that exists goes on."
)
@click.option(
    "--suffix", metavar="TAG", help="Which batch of a recorded investigation (default: its newest)."
)
@click.option(
    "--steps",
    metavar="LIST",
    help="Steps to start from the reference's state, as in 0,5,10-19 (default: chosen).",
)
@click.option(
    "--envelope",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Train the reference N times from parameters that are one ULP off, for the curve's envelope (8 is usual).",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Train every mode with N seeds, to test for a systematic lag (12 is usual, 10 the least that can tell).",
)
@click.option(
    "--state-budget",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULT_STATE_BUDGET / 2**20,
    show_default=True,
    metavar="MIB",
    help="Disk for the states of the steps, a mode; fewer steps are chosen when it is small.",
)
@click.option("--kernel", "kernels", multiple=True, metavar="OP=PATH", help="A kernel of your own (.c, .py).")
@nproc_option
@click.option(
    "--against-single",
    is_flag=True,
    help="With --nproc: the reference is the first mode in one process, which takes the whole batch at each step.",
)
@click.option("--timeout", type=float, metavar="SECONDS", help="End a run that takes longer.")
@click.option(
    "--jobs", type=click.IntRange(min=1), default=2, show_default=True, help="Runs side by side at a time."
)
@click.option(
    "--localize",
    type=click.Choice(["all", "faults", "none"]),
    default="all",
    show_default=True,
    help="Whose causes to look for and to prove: of every pair that differs, of those beyond rounding, or none.",
)
@click.option(
    "--scripts/--no-scripts",
    default=True,
    help="Write a standalone script for each culprit, and run it (default: yes).",
)
@click.option(
    "--confirm/--no-confirm",
    default=True,
    help="Train a mode once more to the end with its culprits swapped out (default: yes).",
)
@knobs_option
@partition_bisect_option
@module_option
@strict_option
@click.option("--quiet", "-q", is_flag=True, help="Print failures and nothing else.")
@click.option("--verbose", "-v", is_flag=True, help="Print every step's score and its worst tensors.")
@out_option
@force_option
@json_option
def command(script: str | None, arguments: tuple[str, ...], **options: Any) -> int:
    os.environ.setdefault(
        "OMP_WAIT_POLICY", "passive"
    )  # runs side by side must not spin; it changes no result
    progress = CommandLineProgress(quiet=options["quiet"])
    laboratory = Laboratory(progress, options["jobs"], options["timeout"])
    reproducer, arguments = asked_for(script, options["module"], arguments)
    if reproducer.path.is_dir():
        folder = reproducer.path
        runs = recorded_runs(options["out"], folder, options["suffix"])
        _refuse_modes(folder, arguments, options)
        found = investigate_runs(
            runs, _plan(reproducer, (), Investigation(runs[0].path.parent), options), laboratory
        )
    else:
        plan = _plan(
            reproducer,
            _modes(options),
            choose_investigation(options["out"], reproducer.named_after, options["name"], ""),
            options,
        )
        found = investigate(replace(plan, arguments=arguments), laboratory)
    if options["json_path"]:
        write_json(options["json_path"], found.to_json(), force=options["force"])
    if options["quiet"]:
        for pair in found.pairs:
            if pair.exit_code:
                console(stderr=True).print(
                    f"numdrift: {pair.b} against {pair.a}: {pair.text[0]}", soft_wrap=True
                )
    elif options["json_path"] != "-":
        show(console(), found, verbose=options["verbose"])
    return found.exit_code


def _modes(options: dict[str, Any]) -> list[ModeSpec]:
    listed = options["listed"] if options["listed"] or options["single"] else DEFAULT_MODES
    return compared_modes(parse_modes(listed, options["single"]), alone=_against_single(options))


def _against_single(options: dict[str, Any]) -> bool:
    """Raises UsageError where there would be nothing but single processes."""
    if options["against_single"] and options["nproc"] < 2:
        raise UsageError(
            "--against-single holds several processes against one: say how many, as in --nproc 2"
        )
    return bool(options["against_single"])


def _plan(
    reproducer: Reproducer, modes: Sequence[ModeSpec], investigation: Investigation, options: dict[str, Any]
) -> InvestigationPlan:
    return InvestigationPlan(
        script=reproducer.path,
        module=reproducer.module,
        strict=options["strict"],
        modes=modes,
        investigation=investigation,
        steps=None if options["steps"] is None else StepSelection.parse(options["steps"]),
        envelope=options["envelope"],
        seeds=options["seeds"],
        state_budget=int(options["state_budget"] * 2**20),
        jobs=options["jobs"],
        timeout=options["timeout"],
        nproc=options["nproc"],
        against_single=options["against_single"],
        force=options["force"],
        kernels=[stated_kernel(text) for text in options["kernels"]],
        localize=options["localize"],
        scripts=options["scripts"],
        knobs=options["knobs"],
        partition_bisect=options["partition_bisect"],
        confirm=options["confirm"],
    )


def _refuse_modes(folder: Path, arguments: Sequence[str], options: dict[str, Any]) -> None:
    given = [name for name in ("listed", "single", "name", "kernels") if options[name]]
    if given or arguments or options["nproc"] > 1 or options["against_single"]:
        raise changes_nothing(folder)


class CommandLineProgress:
    """Rounds of runs as `numdrift run` shows them, each under a title."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = console(stderr=True)
        self._understood = UnderstoodLines()

    def round(self, title: str, names: Sequence[str]) -> AbstractContextManager[Reporter]:
        self.say(f"{title}:")
        return reporter_for(names, quiet=self._quiet, understood=self._understood)

    def say(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, soft_wrap=True)
