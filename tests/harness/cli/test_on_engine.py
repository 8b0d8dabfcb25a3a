"""The command line of a task: the command reads from it what it has read from the user's."""

from __future__ import annotations

import importlib
from typing import Any

import click
import pytest

from numdrift.harness.cli.on_engine import OWN, _words


@pytest.mark.parametrize(
    "words",
    [
        ["run", "train.py", "--modes", "cpu", "--", "--epochs", "2", "-v", "--engine", "x"],
        [
            "run",
            "-m",
            "pkg.train",
            "--mode",
            "cpu",
            "--mode",
            "b=cpu,args+=--width 8",
            "--engine=ray",
            "-v",
            "--",
            "--lr",
        ],
        ["investigate", "train.py", "--no-scripts", "--state-budget=2.5", "--steps", "0,1", "--name", "n", "--quick"],
        ["investigate", "--max-steps", "3", "--kernel", "tanh=a.c", "--kernel", "mm=b.py", "train.py", "--json", "-"],
        ["check", "ops.py:f", "--inputs", "randn(2, 3)", "--no-gradients", "--seeds", "4", "--engine", "ray", "--edge"],
    ],
)
def test_a_task_gets_the_parameters_of_the_command(words: list[str]) -> None:
    command: click.Command = importlib.import_module(f"numdrift.harness.cli.{words[0]}").command

    def read(given: list[str]) -> tuple[click.Context, dict[str, Any]]:
        context = command.make_context(words[0], list(given))
        return context, {name: value for name, value in context.params.items() if name not in OWN}

    context, stated = read(words[1:])
    again, of_task = read(list(_words(context)))

    assert of_task == stated
    assert again.params["engine"] == "local" and again.params["name"] is None


def test_variables_that_set_an_option_are_part_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPH_VISUALIZATION", "1")
    command: click.Command = importlib.import_module("numdrift.harness.cli.run").command

    assert list(_words(command.make_context("run", ["train.py"]))) == ["--graphs", "--", "train.py"]
