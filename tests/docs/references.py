"""The references that are made from the program itself: `python -m tests.docs.references` writes them.

docs/reference/commands.md      the help of every command
docs/reference/python-api.md    every public name with its docstring
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import click

import numdrift
from numdrift.harness.cli.program import program

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
WIDTH = 100


def commands(command: click.Command, path: tuple[str, ...] = ("numdrift",)) -> Iterator[tuple[str, str]]:
    """Every command with its help, groups before what is in them."""
    settings = {**program.context_settings, "max_content_width": WIDTH, "terminal_width": WIDTH}
    context = click.Context(command, info_name=" ".join(path), **settings)
    yield " ".join(path), command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from commands(inner, (*path, name))


def command_reference() -> str:
    parts = ["# Commands", "", "The help text of every command, as the command prints it."]
    for name, text in commands(program):
        lines = [line.rstrip() for line in text.splitlines()]
        parts += ["", f"## {name}", "", "```", *lines, "```"]
    return "\n".join(parts) + "\n"


def python_reference() -> str:
    parts = [
        "# Python",
        "",
        "Every public name of the package `numdrift`, with its docstring. [The guide](../guide/python.md) has an example of each.",
    ]
    for name in sorted(numdrift._HOMES, key=str.lower):
        one = getattr(numdrift, name)
        parts += ["", f"## {name}", "", *described(name, one)]
        if inspect.isclass(one):
            for inner, value in vars(one).items():
                member = value.fget if isinstance(value, property) else value
                if not inner.startswith("_") and inspect.isfunction(member) and inspect.getdoc(member):
                    shown = f"{name}.{inner}"
                    parts += ["", f"### {shown}", "", *described(shown, member, called=not isinstance(value, property))]
    return "\n".join(parts) + "\n"


class Unquoted:
    """An annotation as it stands in the source, which `inspect` would show in quotes."""

    def __init__(self, text: object) -> None:
        self._text = text

    def __repr__(self) -> str:
        return str(self._text) if isinstance(self._text, str) else "None"


def described(name: str, one: Any, *, called: bool = True) -> list[str]:
    """How it is called, and its docstring as it stands in the source."""
    head = name
    if called and not (inspect.isclass(one) and is_dataclass(one)):
        signature = inspect.signature(one)
        shown = [
            each.replace(annotation=Unquoted(each.annotation)) if isinstance(each.annotation, str) else each
            for each in signature.parameters.values()
        ]
        head += str(signature.replace(parameters=shown, return_annotation=Unquoted(signature.return_annotation)))
    return ["```text", head, "", *(inspect.getdoc(one) or "").splitlines(), "```"]


WRITTEN = {"commands.md": command_reference, "python-api.md": python_reference}


def main() -> int:
    for name, text in WRITTEN.items():
        (REFERENCE / name).write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
