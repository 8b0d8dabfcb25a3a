"""Arguments and options shared by several commands, and click options made from the options of requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..engines.engine import ENGINES, LOCAL
from ..errors import UsageError
from ..launch.training_request import TrainingRequest
from ..records.modes.mode_spec import ModeSpec, parse_modes
from ..records.run.run_request import RunRequest
from ..records.run.user_option import UserOption
from ..records.run.user_option import options_of as run_options

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

script_argument = click.argument("script", required=False, type=click.UNPROCESSED)
"""A path, or the name of a console script; `numdrift.harness.launch.batch_plan.reproducer_of` reads it."""

arguments_argument = click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- ARGS]...")

target_argument = click.argument("target", metavar="[RUN | INVESTIGATION]", required=False)
run_mode_option = click.option("--mode", metavar="MODE", help="Use only the runs in this mode.")
"""`numdrift.harness.api.chosen_runs.runs_meant` reads the target and the mode."""

modes_option = click.option(
    "--modes",
    "listed",
    metavar="LIST",
    help="Modes without settings, separated by commas, as in cpu,compile,lazy.",
)
mode_option = click.option(
    "--mode",
    "single",
    multiple=True,
    metavar="SPEC",
    help="One mode with its settings, or @FILE for the modes of a TOML file; may be repeated.",
)
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Print only failures.")
json_option = click.option("--json", "json_path", metavar="PATH", help="Write the result as JSON (- for stdout).")

engine_option = click.option(
    "--engine",
    type=click.Choice(tuple(ENGINES)),
    default=LOCAL,
    show_default=True,
    help=f"What executes the tasks: {'; '.join(f'{name}, {entry.text}' for name, entry in ENGINES.items())}.",
)
engine_settings_option = click.option(
    "--engine-option",
    "engine_options",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the engine; may be repeated.",
)
shared_option = click.option(
    "--shared",
    default="",
    metavar="URL",
    help="With --engine ray, on machines without a shared file system: where results travel, as in s3://bucket/runs.",
)


def options_of(request: type[TrainingRequest], *names: str) -> Decorator:
    """Add the options of a request with these names, in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for name in reversed(names):  # the last decorator is the first line of --help
            command = click_option(request.options()[name])(command)
        return command

    return decorate


def option_of(request: type[TrainingRequest], name: str, **facts: Any) -> Decorator:
    """Add one option of a request, with `facts` (the help text, for example) in place of those that it declares."""
    return click_option(replace(request.options()[name], **facts))


def listed_modes_option(default: str) -> Decorator:
    """Add --modes with a default."""
    text = f"Modes without settings, separated by commas, as in cpu,compile,lazy (default: {default})."
    return click.option("--modes", "listed", metavar="LIST", help=text)


name_option = options_of(TrainingRequest, "name")
out_option = options_of(TrainingRequest, "out")
force_option = options_of(TrainingRequest, "force")


def recorded_option(field: str, **facts: Any) -> Decorator:
    """Add the option of a run that sets this field, with `facts` in place of those that it declares."""
    return click_option(replace(run_options(RunRequest)[field], **facts))


def recording_options(**before: Decorator) -> Decorator:
    """Add each option of a run that users may set.

    `before` maps the name of a field to an option that is listed before the field's own option.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for field, option in reversed(list(run_options(RunRequest).items())):
            command = click_option(option)(command)
            if field in before:
                command = before[field](command)
        return command

    return decorate


def click_option(option: UserOption) -> Decorator:
    """Return the decorator that adds an option to a command."""
    facts: dict[str, Any] = {"help": option.help, "metavar": option.metavar}
    flags = (*option.flag.split(), option.name)
    if option.kind is bool:
        return click.option(
            *flags, is_flag=True, default=option.default, envvar=option.variable, show_envvar=bool(option.variable),
            **facts,
        )  # fmt: skip
    if option.kind is tuple:
        return click.option(*flags, multiple=True, **facts)
    return click.option(
        *flags, type=_click_type(option), default=option.default, show_default=option.shows_default, **facts
    )


def _click_type(option: UserOption) -> Any:
    if option.choices:
        return click.Choice(option.choices)
    if option.kind is int and option.least is not None:
        return click.IntRange(min=option.least)
    if option.kind is float and option.least is not None:
        return click.FloatRange(min=option.least, min_open=True)
    if issubclass(option.kind, Path):  # an option with a default is a folder to write to
        return click.Path(path_type=Path, file_okay=option.default is None)
    return option.kind


def chosen_modes(
    listed: str | None, single: Sequence[str], example: str = "cpu,compile,lazy", why: str = ""
) -> list[ModeSpec]:
    """Return the modes of --modes and --mode.

    Raises UsageError and ModeError. If there is no mode, the message begins with `why`.
    """
    if listed is None and not single:
        raise UsageError(f"{why}no mode is named; name some, as in --modes {example}")
    return parse_modes(listed, single)
