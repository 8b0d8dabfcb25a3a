from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from numdrift.harness.errors import UsageError
from numdrift.kernels.lab.captured import MOST, captured

X = torch.arange(6.0)


def save(path: Path, **content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)
    return path


def test_calls_of_a_run_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    # given
    for number in (10, 9, 2):
        save(tmp_path / "kernels" / "mul" / f"{number}.pt", op="mul", args=[X, float(number)], kwargs={})
    save(tmp_path / "kernels" / "exp" / "0.pt", op="exp", args=[X], kwargs={})
    # when
    case = captured("mul", tmp_path)
    # then
    assert [call.args[1] for call in case.calls] == [2, 9, 10]
    assert torch.equal(case.calls[0].args[0], X)
    assert (case.inputs, case.variant) == ("captured", "")


def test_a_file_and_a_folder_of_files_are_read_and_strides_and_dtypes_stay(tmp_path: Path) -> None:
    strided = torch.rand(3, 4, dtype=torch.bfloat16).t()
    file = save(tmp_path / "a.pt", op="sum.dim_IntList", args=[strided, [0], False], kwargs={"dtype": torch.float32})
    for path in (file, tmp_path):
        (call,) = captured("sum", path).calls
        assert call.args[0].stride() == strided.stride() and torch.equal(call.args[0], strided)
        assert call.args[1:] == ([0], False) and call.kwargs == {"dtype": torch.float32}


def test_of_many_calls_some_are_read_from_the_first_to_the_last(tmp_path: Path) -> None:
    for number in range(MOST + 40):
        save(tmp_path / f"{number}.pt", op="mul", args=[X, number])
    case = captured("mul", tmp_path)
    assert case.variant == f"{MOST} of {MOST + 40} calls"
    numbers = [call.args[1] for call in case.calls]
    assert numbers == sorted(set(numbers)) and numbers[0] == 0 and numbers[-1] == MOST + 39


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    # given a pickle that would write a file when it is loaded
    class Payload:
        def __reduce__(self) -> Any:
            return (open, (str(tmp_path / "written"), "w"))

    save(tmp_path / "bad.pt", op="mul", args=[Payload()])
    # when
    with pytest.raises(UsageError, match=r"bad\.pt is not a captured call"):
        captured("mul", tmp_path / "bad.pt")
    # then
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"op": "exp", "args": [X]}, "is a call of exp, not of mul"),
        ({"args": [X]}, "it has no 'op' and 'args'"),
        ({"op": "mul", "args": X}, "'args' must be a list"),
        ({"op": "mul", "args": [X, {"a": 1}]}, "contains a value of type dict"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(content: dict[str, Any], why: str, tmp_path: Path) -> None:
    file = save(tmp_path / "one.pt", **content)
    with pytest.raises(UsageError, match=rf"one\.pt .*{why}"):
        captured("mul", file)


def test_missing_and_foreign_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no run or file"):
        captured("mul", tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"has no captured call of mul: it has no kernels/mul/\*.pt"):
        captured("mul", tmp_path)
    save(tmp_path / "kernels" / "exp" / "0.pt", op="exp", args=[X])
    with pytest.raises(UsageError, match="has no captured call of mul: it has calls of exp"):
        captured("mul", tmp_path)
    (tmp_path / "text.pt").write_text("hello")
    with pytest.raises(UsageError, match=r"text\.pt is not a captured call"):
        captured("mul", tmp_path / "text.pt")
    (tmp_path / "empty.pt").touch()
    with pytest.raises(UsageError, match=r"empty\.pt is not a captured call"):
        captured("mul", tmp_path / "empty.pt")
