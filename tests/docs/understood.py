"""What the real program makes of a command line, up to where it would begin to work."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import click

from numdrift.harness.cli.program import program
from numdrift.harness.records.modes.mode_spec import ModeSpec, parse_mode, parse_modes

SPECIFIED = (
    "run", "investigate", "check", "bisect", "baseline check", "baseline save", "neutral", "resume", "reference", "profile", "snapshot take", "analyze", "partition", "snapshot replay",
    "bundle open",
)  # fmt: skip
"""Commands whose --mode is a specification; that of the others names a recorded run."""


@dataclass(frozen=True, slots=True)
class Understood:
    """A command line with the values of its parameters, and the modes that it specifies."""

    command: str
    values: dict[str, Any]
    modes: tuple[ModeSpec, ...]


def understood(arguments: Sequence[str]) -> Understood:
    """Parse as `numdrift` does. Raises what it raises of wrong usage."""
    reached: list[click.Context] = []

    def note(command: click.Command, context: click.Context) -> None:
        reached.append(context)

    with patch.object(click.Command, "invoke", note):
        program.main(list(arguments), prog_name="numdrift", standalone_mode=False)
    last = reached[-1]
    if isinstance(last.command, click.Group):
        raise click.UsageError(f"{last.command_path} is a group of commands")
    name = last.command_path.removeprefix("numdrift ").replace("[OPTIONS] ", "")
    return Understood(name, last.params, tuple(specified(name, last.params)))


def specified(command: str, values: dict[str, Any]) -> list[ModeSpec]:
    """The modes of --modes and --mode, parsed. Raises UsageError and ModeError."""
    if "single" in values and (values["listed"] or values["single"]):
        return parse_modes(values["listed"], values["single"])
    if command == "doctor" and values["modes"]:
        return parse_modes(values["modes"])
    if command in SPECIFIED and values.get("mode"):
        return [parse_mode(values["mode"])]
    return []


def unknown_options(text: str) -> set[str]:
    """Options that a sentence names and the command has not: `numdrift localize RUN_A RUN_B [--step N]`."""
    own = shlex.split(re.sub(r"[][|\\]", " ", text).split(" -- ")[0])[1:]
    command: click.Command = program
    for word in own:
        inner = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
        if inner is None:
            break
        command = inner
    if command is program:
        raise click.UsageError(f"there is no command {own[0]!r}")
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return {word for word in own if word.startswith("--")} - known
