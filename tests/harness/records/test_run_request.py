"""What a run is asked for stands once: the command, the Python interface, the plan and config.json follow from it."""

from __future__ import annotations

import inspect
import json
import math
import re
from pathlib import Path
from typing import Any

import click
import pytest

import numdrift
from numdrift.harness.api.api_running import BatchOptions, BatchRequest
from numdrift.harness.cli.investigate import command as investigate_command
from numdrift.harness.cli.run import command
from numdrift.harness.errors import UsageError
from numdrift.harness.investigate.experiments.investigation_plan import InvestigationOptions, InvestigationRequest
from numdrift.harness.launch.batch_plan import BatchPlan
from numdrift.harness.launch.training_request import TrainingRequest
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.records.run.run_request import RunOptions, RunRequest, requested
from numdrift.harness.records.run.step_selection import KeepParams, StepSelection
from numdrift.harness.records.run.user_option import options_of

from ...conftest import ROOT

OLDER = {
    "script": "/work/train.py",
    "mode": {"name": "fast", "base": "compile", "contract": "fast"},
    "journal": "/work/runs/train/fast/journal",
    "arguments": ["--epochs", "2"],
    "record": "ops",
    "steps": "0,5,10-19",
    "keep_params": "every=3",
    "value_budget": 1048576,
    "kernels": [["tanh", "/work/mine.c"]],
    "tapes": "4",
}
"""A config.json as version 0.1 wrote it, without the fields that came later."""


def test_a_config_of_an_older_version_is_read() -> None:
    config = RunConfig.from_json(OLDER)
    assert config == RunConfig(
        "/work/train.py",
        parse_mode("fast=compile,contract=fast"),
        "/work/runs/train/fast/journal",
        ("--epochs", "2"),
        record="ops",
        steps=StepSelection.parse("0,5,10-19"),
        keep_params=KeepParams(3),
        value_budget=1 << 20,
        kernels=(("tanh", "/work/mine.c"),),
        tapes=StepSelection.parse("4"),
    )
    assert config.graph_steps == StepSelection.parse("0-1") and config.states is None


def test_a_config_comes_back_from_its_file(tmp_path: Path) -> None:
    config = RunConfig.from_json(OLDER)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config.to_json()))
    assert RunConfig.load(file) == config
    assert {**OLDER, "mode": None}.items() <= {**json.loads(file.read_text()), "mode": None}.items()


def test_the_command_and_the_python_interface_have_every_option() -> None:
    names = {declared.name for declared in options_of(RunRequest).values()}
    assert names == set(RunOptions.__annotations__)
    assert names <= set(inspect.signature(numdrift.run).parameters)
    assert names <= {parameter.name for parameter in command.params}


@pytest.mark.parametrize(
    ("function", "request_type", "options", "of_command"),
    [
        (numdrift.run, BatchRequest, BatchOptions, command),
        (numdrift.investigate, InvestigationRequest, InvestigationOptions, investigate_command),
    ],
)
def test_a_request_has_the_options_of_its_function_and_of_its_command(
    function: Any, request_type: type[TrainingRequest], options: type, of_command: click.Command
) -> None:
    declared = request_type.options()
    # given the names and defaults of the request
    defaults = {name: option.default for name, option in declared.items()}
    # then the function has them, and the command without an option makes the same request
    parameters = inspect.signature(function).parameters
    assert set(declared) == set(options.__annotations__)
    assert {name: parameters[name].default for name in declared} == defaults
    of_flags = of_command.make_context("command", ["train.py"], help_option_names=["-h", "--help"]).params
    made = request_type.of("train.py", [], [], {name: of_flags[name] for name in declared})
    assert made == request_type.of("train.py", [], [], {})


def test_a_value_below_the_least_is_refused_by_both() -> None:
    with pytest.raises(UsageError, match="--envelope -1 is too small; the minimum is 0"):
        InvestigationRequest.of("train.py", [], [], {"envelope": -1})
    with pytest.raises(click.UsageError, match="-1 is not in the range x>=0"):
        investigate_command.main(["train.py", "--envelope", "-1"], standalone_mode=False)
    with pytest.raises(UsageError, match=re.escape("--state-budget 0 must be greater than 0")):
        InvestigationRequest.of("train.py", [], [], {"state_budget": 0})


def test_an_option_is_named_by_no_file_of_the_command_the_plan_or_the_interface() -> None:
    # given the options that nothing but a recording has (`steps` and `states` are words of much else)
    options = {"keep_budget", "value_budget", "graph_steps", "trace_kernels", "sketches", "noise_replays"}
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("cli", "launch", "api")
        for path in (ROOT / "harness" / folder).rglob("*.py")
        for name in options & set(re.findall(r"\w+", path.read_text()))
    }
    # then what a run showed of traced ops is printed, two options have others before them in --help,
    # traced ops are looked up before anything starts, `numdrift.record` takes a few options
    # by name, and the docstring of `numdrift.run` says what the unit of one is
    assert found == {
        "harness/cli/run.py: trace_kernels",
        "harness/cli/shown_runs.py: trace_kernels",
        "harness/cli/run.py: sketches",
        "harness/launch/batch_plan.py: trace_kernels",
        "harness/api/api_recording.py: keep_budget",
        "harness/api/api_running.py: keep_budget",
    }


def test_options_as_users_give_them_become_fields() -> None:
    asked = requested({"keep_budget": 1.5, "graphs": True, "graph_steps": "3-4", "states": "all", "steps": ""})
    assert asked == {
        "value_budget": 3 << 19,
        "graphs": True,
        "graph_steps": StepSelection(((3, 4),)),
        "states": StepSelection(),
    }
    assert {name for name in asked if name not in BatchPlan.__dataclass_fields__} == set()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"graph_steps": "0"}, "--graph-steps selects the steps of --graphs; add --graphs"),
        ({"graph_steps": " ", "graphs": True}, "--graph-steps names no step; steps are numbered from 0"),
        ({"states": ""}, "--states names no step; write all, or a list"),
        ({"states": "x"}, "--states 'x': 'x' is not a step"),
        ({"metrics": True, "graphs": True}, "would measure the capture of the graphs"),
        ({"max_steps": 0}, "--max-steps 0 is not a number of steps; the minimum is 1"),
        ({"max_steps": -1}, "--max-steps -1 is not a number of steps"),
        ({"max_seconds": 0}, "--max-seconds 0 is not a positive number of seconds"),
        ({"max_seconds": math.nan}, "--max-seconds nan is not a positive number of seconds"),
        ({"keep_params": "some"}, "--keep-params 'some': write all, last or every=N"),
    ],
)
def test_what_an_option_cannot_mean_is_refused(options: RunOptions, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        requested(options)
    assert said in str(refused.value)


@pytest.mark.parametrize(("written", "seconds"), [("90", 90.0), (1.5, 1.5), ("none", math.inf), (math.inf, math.inf)])
def test_a_budget_is_a_time_in_seconds_or_none(written: float | str, seconds: float) -> None:
    assert InvestigationRequest.of("train.py", [], [], {"budget": written}).budget == seconds


@pytest.mark.parametrize("written", ["5m", 0, -1, "nan"])
def test_a_budget_that_is_no_time_is_refused(written: float | str) -> None:
    with pytest.raises(UsageError, match=f"--budget {written} is not a positive number of seconds, or none"):
        InvestigationRequest.of("train.py", [], [], {"budget": written})


def test_an_option_that_there_is_not_is_refused_as_python_does() -> None:
    with pytest.raises(
        TypeError, match=re.escape("unexpected keyword argument 'graph_step'; did you mean 'graph_steps'?")
    ):
        numdrift.run("train.py", ["cpu"], graph_step="0")  # type: ignore[call-arg]
