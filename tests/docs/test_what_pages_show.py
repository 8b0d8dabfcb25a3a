"""What the pages show could be typed: each command has its options and choices, and each block of Python its names."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from typing import Any, TypeGuard
from unittest.mock import patch

import click
import pytest

import numdrift
from numdrift.harness.errors import ModeError, UsageError
from numdrift.harness.records.modes.mode_registry import EAGER, ModeEntry, registry

from ..row_by_row import table
from .shown import PAGES, Fence, ShownCommand, fences, shown_commands, spoken_of
from .understood import understood, unknown_options

COMMANDS = [one for one in shown_commands() if one.is_ours]
PYTHON = [fence for path in PAGES for fence in fences(path) if fence.language == "python"]


def placed(one: ShownCommand) -> str:
    return f"{one.place} {one.text}"


@pytest.fixture
def plug_ins_of_a_page() -> Iterator[None]:
    """The modes `toy` and `standin` of docs/guide/add-a-backend.md, which are not installed here."""
    with patch.dict(registry._entries):
        registry.register(ModeEntry("toy", "toy_backend:ToyMode", "plug-in toy_backend:ToyMode"))
        summary = "eager on the device 'standin'"
        registry.register(ModeEntry("standin", EAGER, summary, device="standin", module="standin_device"))
        yield


@table("shown", COMMANDS, ids=placed)
def test_a_command_is_understood(shown: ShownCommand, plug_ins_of_a_page: None) -> None:
    understood(shown.arguments)


@table("spoken", list(spoken_of()), ids=placed)
def test_a_command_within_a_sentence_has_the_options_that_it_names(spoken: ShownCommand) -> None:
    assert unknown_options(spoken.text) == set()


@pytest.mark.parametrize(
    "wrong",
    [
        "run train.py --modus cpu",
        "run train.py --modes cpu,compiel",
        'run train.py --mode "compile,contrakt=fast"',
        "run train.py --record everything",
        "run train.py --nproc two",
        "analyze train.py --mode lasy",
        "snapshot replay FILE --mode gpu",
        "doctor --modes gpu",
        "graph draw runs/train",
        "runs export train --to excel --output train.xls",
        "kernels",
    ],
)
def test_a_wrong_command_would_be_seen(wrong: str) -> None:
    with pytest.raises((click.ClickException, UsageError, ModeError)):
        understood(ShownCommand("page", 1, f"numdrift {wrong}").arguments)


def test_a_wrong_option_within_a_sentence_would_be_seen() -> None:
    assert unknown_options("numdrift localize RUN_A RUN_B [--step N] [--knob]") == {"--knob"}


def check_python(text: str) -> None:
    """Raises what is wrong: no Python, a name that numdrift has not, or arguments that it does not take."""
    imported = dict[str, object]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "numdrift":
            module = importlib.import_module(node.module)
            imported |= {one.asname or one.name: getattr(module, one.name) for one in node.names}
    for node in ast.walk(ast.parse(text)):
        if is_ours(node):
            getattr(numdrift, node.attr)
        elif isinstance(node, ast.Call):
            called = node.func
            if is_ours(called):
                bind(getattr(numdrift, called.attr), node)
            elif isinstance(called, ast.Name) and called.id in imported:
                bind(imported[called.id], node)


def is_ours(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Whether it is `numdrift.something`."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "numdrift"


def bind(called: Any, node: ast.Call) -> None:
    named = {one.arg: one.value for one in node.keywords if one.arg is not None}
    if len(named) == len(node.keywords) and not any(isinstance(one, ast.Starred) for one in node.args):
        inspect.signature(called).bind(*node.args, **named)


@table("fence", PYTHON, ids=lambda fence: f"{fence.page}:{fence.line}")
def test_a_block_of_python_names_what_there_is(fence: Fence) -> None:
    check_python(fence.text)


@pytest.mark.parametrize(
    "wrong",
    [
        "if:",
        "import numdrift\nnumdrift.investigat('train.py')",
        "import numdrift\nnumdrift.investigate('train.py', mode='cpu')",
        "from numdrift import load_runs",
        "from numdrift import load_run\nload_run()",
    ],
)
def test_a_wrong_block_would_be_seen(wrong: str) -> None:
    with pytest.raises((SyntaxError, AttributeError, TypeError)):
        check_python(wrong)
