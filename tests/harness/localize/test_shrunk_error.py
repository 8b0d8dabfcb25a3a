"""Calls that raise an error on one side alone, shrunk to fewer ops, smaller shapes and simpler values."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from numdrift.harness.errors import UsageError
from numdrift.harness.localize.scripts import shrunk_error
from numdrift.harness.localize.scripts.error_script import ErrorScript, alike, outcome, written_inputs
from numdrift.harness.localize.scripts.shrunk_error import Trials, first_script, main, shrunk

SCRIPT = ErrorScript(
    heading=["Only b raises an error.", "", "Exit code 1: it does."],
    imports=[],
    settings=[],
    body=["y = torch.exp(x)", "z = y + other", "z.mul_(2)", "w = torch.tanh(z)", "last = w.sum()"],
    returns=["last", "z"],
    calls=[{"x": torch.randn(8, 6), "other": torch.randn(6)}],
    gradients=frozenset({"x"}),
    backward=True,
    under=["torch.no_grad()"],
    compiled={"backend": "eager"},
    device="",
    labels=("a", "b"),
)


class Tanh:
    """Raises an error on side b if tanh gets a tensor with at least 3 rows. Counts the trials."""

    def __call__(self, script: ErrorScript) -> tuple[str, str]:
        code = "\n".join(script.body)
        scope: dict[str, Any] = {name: value.clone() for name, value in script.calls[0].items()}
        exec(f"import torch\n{code}\nresults = [{', '.join(script.returns)}]", scope)  # noqa: S102
        rows = [scope["z"].shape[0]] if "torch.tanh(z)" in code else []
        return "", f"ValueError: {rows[0]} rows" if rows and rows[0] >= 3 else ""


def test_one_op_with_few_rows_of_zeros_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shrunk_error, "outcome", Tanh())
    smaller = shrunk(SCRIPT, Trials(("", alike("ValueError: 8 rows")), until=float("inf")))
    assert (smaller.body, smaller.returns) == (["w = torch.tanh(z)"], ["w"])
    assert {name: value.tolist() for name, value in smaller.calls[0].items()} == {"z": [[0.0], [0.0], [0.0], [0.0]]}
    assert (smaller.gradients, smaller.under, smaller.compiled) == (frozenset(), (), {})


def test_a_script_is_executed_in_a_fork_as_it_is_alone(tmp_path: Path) -> None:
    raising = replace(SCRIPT, body=["y = x.view(-1, 5)"], returns=["y"], backward=False, compiled=None)
    for script, code, part in (
        (replace(SCRIPT, compiled=None, under=()), 0, "a returns"),
        (raising, 0, "RuntimeError: shape '[-1, 5]' is invalid"),
        # a call on a device that does not exist is an error of side b alone
        (replace(SCRIPT, compiled=None, backward=False, device="xpu"), 1, "b raises"),
    ):
        path = tmp_path / "script.py"
        path.write_text(script.text())
        done = subprocess.run([sys.executable, "-I", path], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert part in done.stdout
        errors = outcome(script)
        assert errors is not None
        assert [bool(error) for error in errors] == [
            " raises " in line for line in done.stdout.splitlines() if line[:2] in ("a ", "b ")
        ]


def test_a_side_that_kills_the_process_has_an_outcome() -> None:
    of_both = replace(SCRIPT, body=["import os", "y = os.kill(os.getpid(), 9)"], returns=["y"], compiled=None)
    assert outcome(of_both) is None
    settings = ["import os", "made = []"]
    second = ["made.append(1)", "y = x if len(made) == 1 else os.kill(os.getpid(), 8)"]
    of_b = replace(SCRIPT, settings=settings, body=second, returns=["y"], compiled=None, backward=False)
    assert outcome(of_b) == ("", "killed by SIGFPE")


@pytest.mark.parametrize(
    ("error", "other", "is_alike"),
    [
        ("ValueError: size 3 of /tmp/a/b.py", "ValueError: size 17 of /home/x.py\nmore", True),
        ("LoweringError: TypeError: bad", "LoweringError: \n  TypeError: bad\n  target: x", True),
        ("ValueError: size 3", "TypeError: size 3", False),
        ("ValueError: size 3", "", False),
    ],
)
def test_errors_are_alike_but_for_numbers_and_paths(error: str, other: str, is_alike: bool) -> None:
    assert (alike(error) == alike(other)) is is_alike


def test_inputs_are_written_with_their_strides() -> None:
    values = {
        "zeros": torch.zeros(100, 3),
        "same": torch.full((100,), 2, dtype=torch.int8),
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "expanded": torch.tensor([1.5, 2.5]).expand(3, 2),
        "empty": torch.zeros(0, 4, dtype=torch.bool),
        "flags": torch.tensor([True, True]),
    }
    scope: dict[str, Any] = {"torch": torch}
    exec("\n".join(written_inputs(values)), scope)  # noqa: S102
    for name, value in values.items():
        assert torch.equal(scope[name], value) and scope[name].stride() == value.stride(), name
        assert scope[name].dtype == value.dtype
    with pytest.raises(UsageError, match="x still has 65 elements"):
        written_inputs({"x": torch.arange(65)})


def test_what_the_ops_alone_do_not_raise_has_no_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = {"imports": [], "inputs": {"x": torch.ones(2)}, "body": ["y = x + 1"], "returns": ["y"]}
    torch.save([{"graphs": [graph], "grad": True, "under": [], "compiled_with": {}}], tmp_path / "calls.pt")
    request = {
        "traced": str(tmp_path / "calls.pt"), "target": str(tmp_path / "shrunk.py"), "spec": "cpu", "labels": ["a", "b"],
        "errors": ["", "ValueError: no"], "heading": ["x"],
    }  # fmt: skip
    (tmp_path / "request.json").write_text(json.dumps(request))
    assert main([str(tmp_path / "request.json")]) == 2
    assert "do not raise this error without the script" in capsys.readouterr().out
    assert not (tmp_path / "shrunk.py").exists()
    trials = Trials(("", ""), until=float("inf"))
    assert first_script(request, trials).body == ["y = x + 1"]
