"""`numdrift investigate`: decides whether modes differ by more than rounding, and prints the findings in words."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..api.checking import CheckRequest, checked
from ..api.investigating import DEFAULT_MODES, investigated
from ..errors import NumdriftError, UsageError
from ..investigate.experiments.investigation_plan import InvestigationRequest
from ..launch.supervise import Reporter
from ..records.modes.mode_spec import parse_modes
from ..records.results.findings import Findings, PairFindings
from ..report.answer import answers_of
from ..report.call_issue import issue_text
from ..report.report_page import NAME, page_of
from ..report.rows import report_of
from . import command_options as options
from .on_engine import EngineChoice, engine_options
from .output import INTERRUPTED, console, number, require_new, table, write_json, write_text
from .progress import UnderstoodLines, reporter_for
from .shown_calls import show_calls
from .shown_culprits import show_culprits

WORST_SHOWN = 5

Z_IS = "z: the distance between a step's results, as a multiple of the distance that rounding alone causes"

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
  numdrift investigate train.py --modes cpu,cuda --name train --engine submitit --engine-option slurm_partition=gpu

\b
The first mode is the reference. Each mode is run twice. The second run of a mode is its control, and starts
chosen steps from the reference's state. A drift counts as more than rounding if it is beyond the threshold: at
least 16 times the distance by which random rounding alone moves a step's result. Existing runs are reused.
Exit codes: 0 no drift beyond rounding, 1 drift beyond rounding or another verdict that needs attention,
2 wrong usage, 3 a run failed.
"""

suspects_option = click.option(
    "--suspects",
    is_flag=True,
    help="Also list causes that no experiment has proven (default: show only their number).",
)

frames_option = click.option(
    "--frames",
    is_flag=True,
    help="Also print every line of your code that led to each culprit (default: only the culprit's own line, and "
    "the line of the script that led to it).",
)


@click.command(
    epilog=EXAMPLES,
    help="Run SCRIPT in several modes and decide whether they differ by more than rounding. SCRIPT may also be the "
    "folder of an investigation that `numdrift run` has recorded.",
)
@options.script_argument
@options.arguments_argument
@options.listed_modes_option(DEFAULT_MODES)
@options.mode_option
@options.options_of(InvestigationRequest, "name", "suffix", "steps", "envelope", "seeds", "state_budget")
@options.option_of(
    InvestigationRequest,
    "graphs",
    help="Also capture each mode's graphs, for the report and for `numdrift graph`.",
    variable=None,
)
@options.option_of(InvestigationRequest, "kernels", help="A kernel of your own for OP, a .c or .py file.")
@options.options_of(
    InvestigationRequest, "nproc", "against_single", "against", "max_steps", "max_seconds", "keep_files", "in_place",
    "timeout", "jobs", "localize", "budget",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="Find only the verdict, not the causes (the same as --localize none).")
@options.options_of(InvestigationRequest, "scripts", "confirm", "knobs", "partition_bisect", "poison")
@suspects_option
@frames_option
@options.options_of(InvestigationRequest, "module", "strict")
@engine_options
@options.quiet_option
@click.option(
    "--verbose", "-v", is_flag=True, help="Also print each step's score, and its tensors with the highest scores."
)
@options.out_option
@options.force_option
@options.json_option
def command(
    script: str | None,
    arguments: tuple[str, ...],
    listed: str | None,
    single: tuple[str, ...],
    choice: EngineChoice,
    quiet: bool,
    verbose: bool,
    suspects: bool,
    frames: bool,
    quick: bool,
    json_path: str | None,
    **settings: Any,
) -> int:
    modes = parse_modes(listed, single) if listed or single else ()  # empty: the default modes or the recorded ones
    request = InvestigationRequest.of(script, modes, arguments, settings | ({"localize": "none"} if quick else {}))
    require_new(json_path, force=request.force)
    if choice.is_elsewhere():
        return choice.execute(request, suffix=request.suffix or "")
    # Each mode trains twice. Each mode except the reference trains once more, without its culprits, and the reference
    # trains its first steps with other seeds. Recorded runs do not train again.
    count = 0 if script is not None and Path(script).is_dir() else len(modes or parse_modes(DEFAULT_MODES))
    further = 0 if request.localize == "none" else count if request.confirm else 1
    progress = CommandLineProgress(quiet=quiet, expected=2 * count + further if count else 0)
    try:
        findings, folder = investigated(request, progress)
    except KeyboardInterrupt:
        progress.interrupted()
        return INTERRUPTED
    endings = findings.runs.values()
    is_file = not request.module and script is not None and Path(script).is_file() and request.nproc == 1
    if is_file and not any(ending.steps or ending.status != "complete" for ending in endings):
        progress.say(f"{script} never trains, so the calls that it makes are compared, as by numdrift check:")
        with suppress(UsageError):  # it calls nothing, either
            chosen = {field.name: getattr(request, field.name) for field in fields(InvestigationRequest)}
            of_calls = CheckRequest(**chosen | {"name": f"{folder.name}-calls"})
            return check_calls(of_calls, json_path, quiet=quiet, suspects=suspects, frames=frames)
    page = folder / NAME
    try:
        page.write_text(page_of(report_of(folder)), encoding="utf-8")
    except (OSError, NumdriftError) as error:  # the findings are written, and can be shown without the page
        console(stderr=True).print(f"numdrift: {page} was not written: {error}", soft_wrap=True)
    if json_path:
        write_json(json_path, findings.to_json(), force=request.force)
    if quiet:  # a calling script reads the exit code; a person who reads its log needs the reason
        for pair in findings.pairs:
            if pair.exit_code:
                console(stderr=True).print(f"numdrift: {pair.b} against {pair.a}: {pair.text[0]}", soft_wrap=True)
    elif json_path != "-":
        show(console(), findings, verbose=verbose, suspects=suspects, frames=frames)
        if page.exists():
            console().print(f"Report: {page} (to share)", soft_wrap=True)
    return findings.exit_code


class CommandLineProgress:
    """The progress of rounds of runs. The runs of a round are shown as `numdrift run` shows them.

    The title of a round says which of the `expected` runs it starts, and about how much time is left, if that is known.
    It says neither if `expected` is 0.
    """

    def __init__(self, *, quiet: bool, expected: int = 0) -> None:
        self._quiet = quiet
        self._console = console(stderr=True)
        self._understood = UnderstoodLines()
        self._expected = expected
        self._begun = 0
        self._verdicts: dict[str, str] = {}
        self._end: float | None = None

    def round(self, title: str, names: Sequence[str]) -> AbstractContextManager[Reporter]:
        if self._expected:
            first, last = self._begun + 1, self._begun + len(names)
            total = max(self._expected, last)
            which = f"run {first}" if first == last else f"runs {first} to {last}"
            title += f" ({which} of about {total}{self._left()})"
            self._begun = last
        self.say(f"{title}:")
        return reporter_for(names, quiet=self._quiet, understood=self._understood)

    def expects(self, seconds: float) -> None:
        """Note that the rest of the investigation takes about so many seconds."""
        self._end = time.monotonic() + seconds

    def _left(self) -> str:
        """Return about how much time is left, "" if that is unknown or if it takes longer than was expected."""
        seconds = 0.0 if self._end is None else self._end - time.monotonic()
        if seconds <= 1:
            return ""
        return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"

    def say(self, text: str) -> None:
        if " against " in text.partition(":")[0]:  # what is known of a pair so far
            self._verdicts[text.partition(":")[0]] = text
        if not self._quiet:
            self._console.print(text, soft_wrap=True)

    def interrupted(self) -> None:
        """Say what is known after Ctrl-C, and how to go on."""
        verdicts = list(self._verdicts.values()) or ["no verdict yet"]
        self._console.print("numdrift: interrupted. What is known so far, without further experiments:", soft_wrap=True)
        for text in verdicts:
            self._console.print(f"  {text}", soft_wrap=True)
        self._console.print(
            "Everything recorded is kept: the same command goes on from there. --quick finds only the verdict, not the "
            "causes.",
            soft_wrap=True,
        )


def check_calls(
    request: CheckRequest,
    json_path: str | None,
    markdown: str | None = None,
    *,
    quiet: bool,
    suspects: bool,
    frames: bool,
) -> int:
    """Compare calls, and show or write the result. `markdown` is the file for the text of an issue, - for stdout."""
    progress = CommandLineProgress(quiet=True)
    try:
        found = checked(request, progress)
    except KeyboardInterrupt:
        progress.interrupted()
        return INTERRUPTED
    if json_path:
        write_json(json_path, found.to_json(), force=request.force)
    if markdown == "-":
        console().print(issue_text(found), soft_wrap=True)
    elif markdown:
        write_text(Path(markdown), issue_text(found))
    if "-" not in (json_path, markdown) and not (quiet and found.is_equal):
        show_calls(console(), found, suspects=suspects, frames=frames)
    return found.exit_code


def show(
    out: Console, findings: Findings, *, verbose: bool = False, suspects: bool = False, frames: bool = False
) -> None:
    """Print the answers in words, a table of the pairs' verdicts, the facts of each pair, and the cost."""
    show_answers(out, findings)
    rows = table(
        "reference", "mode", "verdict", ">first differing step", ">first significant step", ">largest z", ">threshold",
        "closer to fp64",
    )  # fmt: skip
    for pair in findings.pairs:
        steps = (pair.first_differing_step, pair.first_significant_step)
        rows.add_row(
            pair.a,
            pair.b,
            (pair.verdict or "undecided") + (" (inspect)" if pair.inspect else ""),
            *("none" if step is None else f"{step:,}" for step in steps),
            number(pair.score),
            number(pair.threshold),
            pair.closer_to_fp64 or "-",
        )
    out.print(rows)
    if any(pair.score for pair in findings.pairs):
        out.print(Z_IS, soft_wrap=True)
    for pair in findings.pairs:
        show_pair(out, pair, verbose=verbose, suspects=suspects, frames=frames)
    if findings.training_runs or findings.reused:
        reused = f", {findings.reused} reused" if findings.reused else ""
        out.print(
            f"\n{findings.training_runs} training run{'' if findings.training_runs == 1 else 's'}{reused}, "
            f"{findings.steps_trained:,} steps, {findings.seconds:.1f} s"
        )


def show_answers(out: Console, findings: Findings) -> None:
    """Print a sentence for each pair: what happened and what to do. The pairs that need a person come first.

    If the runs of a pair used two interpreters, also print how the interpreters differ.
    """
    for pair, answer in answers_of(findings):
        out.print(f"{answer.sentence}.", soft_wrap=True)
        if pair.interpreters is not None:
            sentence = pair.interpreters.sentence(pair.a, pair.b)
            out.print(f"{sentence[0].upper()}{sentence[1:]}.", soft_wrap=True)
    out.print()


def show_pair(
    out: Console, pair: PairFindings, *, verbose: bool = False, suspects: bool = False, frames: bool = False
) -> None:
    """Print the facts of one pair.

    verbose: also print the score of each step and its worst tensors.
    suspects: also print the causes that have no proof.
    frames: also print the user's lines that led to each cause.
    """
    out.print(f"\n{pair.b} against {pair.a}: {pair.verdict or 'undecided'}", soft_wrap=True)
    for sentence in pair.text:
        out.print(f"  {sentence}", soft_wrap=True)
    show_culprits(out, pair, suspects=suspects, frames=frames)
    if pair.without:
        out.print(f"  {pair.without.text}", soft_wrap=True)
    above = "" if pair.interpreters is None else pair.interpreters.sentence(pair.a, pair.b)
    for note in pair.notes:
        if note != above:  # already printed below the answer
            out.print(f"  note: {note}", soft_wrap=True)
    if verbose and pair.steps:
        rows = table("  step", ">z", "tape", "worst tensors (z)")
        for step in pair.steps:
            tensors = sorted(step.tensors, key=lambda tensor: -tensor.score)[:WORST_SHOWN]
            worst = ", ".join(f"{tensor.name} {number(tensor.score)}" for tensor in tensors if tensor.score)
            taped = "yes" if step.taped else ""
            rows.add_row(f"  {step.step:,}", number(step.score), taped, worst or "identical")
        out.print(rows)
