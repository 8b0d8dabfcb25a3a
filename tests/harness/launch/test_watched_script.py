from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from numdrift.harness.errors import UsageError
from numdrift.harness.launch.watched_script import WatchedScript, watched_script

HERE = sys.executable


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("train.py", WatchedScript("train.py", ())),
        ("train.py --lr 1", WatchedScript("train.py", ("--lr", "1"))),
        ("train.py -- --lr 1", WatchedScript("train.py", ("--lr", "1"))),
        ("train.py --lr 1 -- -x", WatchedScript("train.py", ("--lr", "1", "--", "-x"))),
        (f"{HERE} train.py -- -x", WatchedScript("train.py", ("--", "-x"))),  # as python passes it on
        (f"{HERE} -u train.py -m", WatchedScript("train.py", ("-m",), unbuffered=True)),
        (f"{HERE} -m pkg.train -x", WatchedScript(None, ("-x",), "pkg.train")),
        (f"{HERE} -u -m pkg.train", WatchedScript(None, (), "pkg.train", unbuffered=True)),
    ],
)
def test_a_command_line_is_read_as_python_reads_it(line: str, expected: WatchedScript) -> None:
    assert watched_script(shlex.split(line), None) == expected


def test_a_module_may_be_an_option() -> None:
    assert watched_script(["--", "-x"], "pkg.train") == WatchedScript(None, ("-x",), "pkg.train")


def test_another_python_is_kept(tmp_path: Path) -> None:
    other = tmp_path / "python3.12"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    found = watched_script([str(other), "train.py"], None)
    assert found.python == str(other)
    assert found.plain_command() == [str(other), "train.py"]


@pytest.mark.parametrize("line", ["-u train.py -x", "-m pkg.train -x", "-u -m pkg.train", "train.py"])
def test_without_numdrift_the_command_is_the_same(line: str) -> None:
    words = [HERE, *shlex.split(line)]
    assert watched_script(words, None).plain_command() == words


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no script is given"),
        ("torchrun --nproc-per-node 2 train.py", "torchrun starts several processes; let it start numdrift"),
        (f"{HERE} -c 'import torch'", "cannot be watched"),
        (f"{HERE} -m", "cannot be watched"),
        (HERE, "cannot be watched"),
        ("/nowhere/python train.py", "/nowhere/python is not a program on this machine"),
    ],
)
def test_a_command_that_cannot_be_watched_is_refused(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        watched_script(shlex.split(line), None)
