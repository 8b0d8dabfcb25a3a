"""`numdrift bisect`: finds the first revision of a script's repository, or version of torch, whose training differs."""

from __future__ import annotations

import shlex
from typing import Any

import click
from rich.console import Console

from ..api.bisecting import VersionRange, bisected
from ..investigate.experiments.investigation_plan import InvestigationRequest
from ..records.modes.mode_spec import parse_mode
from ..records.results.bisection import VersionBisection
from . import command_options as options
from .investigate import CommandLineProgress, show
from .output import console, require_new, table, write_json

EXAMPLES = """\b
Examples:
  numdrift bisect train.py --git v1.0..main
  numdrift bisect train.py --git HEAD~20..HEAD --mode compile --max-steps 20 -- --epochs 1
  numdrift bisect -m package.train --git good..bad --bits --json -
  numdrift bisect train.py --torch 2.9.0..2.13.0 --with numpy --with einops

\b
Each tested version is trained and compared with the good one: identical and rounding are good, any other verdict is
bad. Revisions are trained in a clone of the repository, versions of torch in an environment of their own. Versions
that cannot be trained are skipped. The last good version and the first bad one are then investigated in full. The
same command goes on after an interruption.
Exit codes: 0 the two ends do not differ, 1 the first bad version is found, 2 wrong usage.
"""


@click.command(
    epilog=EXAMPLES,
    help="Find the first revision of SCRIPT's repository, or version of torch, whose training differs beyond rounding.",
)
@options.script_argument
@options.arguments_argument
@click.option("--git", "revisions", metavar="GOOD..BAD", help="A range of revisions of the script's repository.")
@click.option(
    "--torch", "torch", metavar="GOOD..BAD", help="A range of versions of torch, which pip installs on demand."
)
@click.option(
    "--with",
    "packages",
    multiple=True,
    metavar="PACKAGE",
    default=("numpy",),
    show_default=True,
    help="With --torch: a package that the script needs; may be repeated.",
)
@click.option("--pip", "pip", default="", metavar="WORDS", help="With --torch: further arguments of pip.")
@click.option(
    "--python", "pythons", multiple=True, metavar="PATH",
    help="An interpreter with its own torch; repeat it, the good one first.",
)  # fmt: skip
@click.option(
    "--mode", "mode", default="cpu", show_default=True, metavar="SPEC", help="The mode in which they are trained."
)
@click.option("--bits", is_flag=True, help="A version is bad if any bit differs, even by rounding only.")
@options.options_of(InvestigationRequest, "name", "max_steps", "timeout", "jobs", "module")
@options.quiet_option
@options.out_option
@options.force_option
@options.json_option
def command(
    script: str | None,
    arguments: tuple[str, ...],
    revisions: str | None,
    torch: str | None,
    packages: tuple[str, ...],
    pip: str,
    pythons: tuple[str, ...],
    mode: str,
    bits: bool,
    quiet: bool,
    json_path: str | None,
    **settings: Any,
) -> int:
    request = InvestigationRequest.of(script, [parse_mode(mode)], arguments, settings)
    require_new(json_path, force=request.force)
    versions = VersionRange(revisions, torch, packages, tuple(shlex.split(pip)), pythons)
    found, findings = bisected(request, versions, CommandLineProgress(quiet=quiet), bits=bits)
    if json_path:
        write_json(json_path, found.to_json(), force=request.force)
    if json_path != "-" and not quiet:
        _show(console(), found)
        if findings is not None:
            show(console(), findings)
    return found.exit_code


def _show(out: Console, found: VersionBisection) -> None:
    out.print(f"{found.answer[0].upper()}{found.answer[1:]}.\n", soft_wrap=True)
    rows = table("version", "title", "outcome", "verdict")
    for version in found.tested:
        rows.add_row(version.name[:10], version.title, version.outcome, version.verdict or "-")
    out.print(rows)
