"""Arguments and options that several commands have, and those of recording as `records/run/run_request.py`
declares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from ..errors import UsageError
from ..records.modes.mode_spec import ModeSpec, parse_modes
from ..records.run.run_request import UserOption, user_options

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

script_argument = click.argument("script", required=False, type=click.UNPROCESSED)
"""A path, or the name of a console script; `numdrift.harness.launch.batch_plan.asked_for` reads it."""

arguments_argument = click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")

module_option = click.option(
    "-m", "--module", metavar="NAME", help="Run a module, as `python -m NAME` would from here, in place of SCRIPT."
)
strict_option = click.option(
    "--strict", is_flag=True, help="Make an error of what was not understood of the script, in place of a doubt."
)
target_argument = click.argument("target", metavar="[RUN | INVESTIGATION]", required=False)
run_mode_option = click.option("--mode", metavar="MODE", help="The mode's run, of an investigation.")
"""Both are read by `numdrift.harness.api.chosen_runs.runs_meant`."""

modes_option = click.option("--modes", "listed", metavar="LIST", help="Modes by base, as in cpu,compile,lazy.")
mode_option = click.option("--mode", "single", multiple=True, metavar="SPEC", help="One mode in full; may be repeated.")
nproc_option = click.option(
    "--nproc", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
    help="Processes of each run, started as torchrun --nproc-per-node N does; "
    "the first one's folder holds the others'.",
)  # fmt: skip
name_option = click.option("--name", help="Name of the investigation (default: the script's, numbered).")
timeout_option = click.option("--timeout", type=float, metavar="SECONDS", help="End a run that takes longer.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Print failures and nothing else.")
out_option = click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("runs"), show_default=True,
    help="The folder that investigations are in.",
)  # fmt: skip
json_option = click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON (- for stdout).")
force_option = click.option("--force", is_flag=True, help="Replace outputs that exist.")


def jobs_option(default: int) -> Decorator:
    return click.option(
        "--jobs", type=click.IntRange(min=1), default=default, show_default=True,
        help="Runs side by side at a time.",
    )  # fmt: skip


def recording_options(**before: Decorator) -> Decorator:
    """An option for each field of a run that users may ask for, and before the field of that name another option."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for field, option in reversed(user_options().items()):  # the last decorator is the first line of --help
            command = _click_option(option)(command)
            if field in before:
                command = before[field](command)
        return command

    return decorate


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """After how many steps or seconds each training is ended, for commands that have no other option of recording."""
    return _click_option(user_options()["max_steps"])(_click_option(user_options()["max_seconds"])(command))


def files_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options on the files that the script writes, to a command that has no other option of recording."""
    return _click_option(user_options()["keep_files"])(_click_option(user_options()["in_place"])(command))


def _click_option(option: UserOption) -> Decorator:
    flag = option.flag or f"--{option.name.replace('_', '-')}"
    facts: dict[str, Any] = {"help": option.help, "metavar": option.metavar}
    # what kind of option it is follows from the field's default
    if isinstance(option.default, bool):
        return click.option(
            flag, option.name, is_flag=True, envvar=option.variable, show_envvar=bool(option.variable), **facts
        )
    if isinstance(option.default, tuple):
        return click.option(flag, option.name, multiple=True, **facts)
    if option.choices:
        facts["type"] = click.Choice(option.choices)
    elif isinstance(option.default, float):
        facts["type"] = click.FloatRange(min=0, min_open=True)
    return click.option(flag, option.name, default=option.default, show_default=option.shows_default, **facts)


def chosen_modes(
    listed: str | None, single: Sequence[str], example: str = "cpu,compile,lazy", why: str = ""
) -> list[ModeSpec]:
    """The modes of --modes and --mode. Raises UsageError and ModeError; where none is given `why` is said first."""
    if listed is None and not single:
        raise UsageError(f"{why}no mode is given; for example --modes {example}")
    return parse_modes(listed, single)
