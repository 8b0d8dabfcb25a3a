"""Wrong usage: one line that names the thing and the remedy, exit code 2, no traceback, nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..conftest import Numdrift

CASES = {
    "no such script": (["run", "nowhere.py", "--modes", "cpu"], ["nowhere.py", "give the path"]),
    "a folder": (["run", ".", "--modes", "cpu"], ["folder", "training script"]),
    "no Python": (["run", "{notes}", "--modes", "cpu"], ["notes.txt", "is not a Python program", "line 1"]),
    "no mode": (["run", "{tiny}"], ["--modes cpu,compile,lazy"]),
    "empty mode list": (["run", "{tiny}", "--modes", ""], ["has an empty entry"]),
    "hole in the mode list": (["run", "{tiny}", "--modes", "cpu,,lazy"], ["has an empty entry"]),
    "unknown mode": (["run", "{tiny}", "--modes", "cpu,lasy"], ["'lasy'", "did you mean 'lazy'"]),
    "unknown key": (["run", "{tiny}", "--mode", "cpu,thread=1"], ["'thread'", "did you mean 'threads'"]),
    "unknown value": (["run", "{tiny}", "--mode", "lazy,mark_step=ofF"], ["mark_step", "did you mean 'off'"]),
    "key of another mode": (["run", "{tiny}", "--mode", "cpu,backend=eager"], ["backend", "compile"]),
    "same name twice": (["run", "{tiny}", "--modes", "cpu,cpu"], ["two modes", "other="]),
    "negative steps": (["run", "{tiny}", "--modes", "cpu", "--steps", "-3"], ["'-3'", "numbered from 0"]),
    "backward steps": (["run", "{tiny}", "--modes", "cpu", "--steps", "9-3"], ["9-3", "3-9"]),
    "all tensors": (["run", "{tiny}", "--modes", "cpu", "--record", "tensors"], ["--steps 0,1"]),
    "unknown level": (["run", "{tiny}", "--modes", "cpu", "--record", "all"], ["'all'", "losses"]),
    "suffix with a separator": (["run", "{tiny}", "--modes", "cpu", "--suffix", "a/b"], ["'a/b'", "letters"]),
    "suffix that climbs": (["run", "{tiny}", "--modes", "cpu", "--suffix", ".."], ["'..'", "letters"]),
    "name with a separator": (["run", "{tiny}", "--modes", "cpu", "--name", "../x"], ["'../x'", "letters"]),
    "no time": (["run", "{tiny}", "--modes", "cpu", "--timeout", "0"], ["--timeout", "positive"]),
    "no jobs": (["run", "{tiny}", "--modes", "cpu", "--jobs", "0"], ["--jobs"]),
    "folder that cannot be": (
        ["run", "{tiny}", "--modes", "cpu", "--out", "{notes}"],
        ["notes.txt", "--out"],
    ),
    "unwritable folder": (["run", "{tiny}", "--modes", "cpu", "--out", "/proc/runs"], ["/proc", "--out"]),
    "no interpreter": (["run", "{tiny}", "--mode", "cpu,python=/no/python"], ["/no/python"]),
    "unknown kernel": (["run", "{tiny}", "--mode", "cpu,kernel.tanh_backward=fam"], ["did you mean 'fma'"]),
    "unknown option": (["run", "{tiny}", "--bogus"], ["--bogus", "--help"]),
    "unknown command": (["rum"], ["'rum'", "did you mean 'run'"]),
    "nothing to compare": (["compare"], ["no investigation", "numdrift run"]),
    "nothing to plot": (["plot", "--suffix", "x"], ["no investigation", "x"]),
    "no such run": (["compare", "a", "b"], ["no run a", "runs list"]),
    "nothing to show": (["runs", "show", "a"], ["no run a"]),
    "report that cannot be": (
        ["analyze", "{tiny}", "--output", "{notes}/x.json"],
        ["notes.txt is not a folder", "--out"],
    ),
    "callback that is not there": (
        ["snapshot", "take", "{tiny}", "--modes", "cpu", "--callback", "{tiny}:choose"],
        ["has no function 'choose'", "tiny.py"],
    ),
    "factory of no file": (["partition", "nofile.py:Net"], ["no file nofile.py", "FILE.py:FACTORY"]),
    "doctor for nobody": (["doctor", "--modes", "cpuu"], ["did you mean 'cpu'"]),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_usage(case: str, numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    arguments, expected = CASES[case]
    notes = tmp_path / "notes.txt"
    notes.write_text("just some notes\n")
    done = numdrift(*(text.format(tiny=tiny, notes=notes) for text in arguments))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stdout == ""
    for words in expected:
        assert words in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
