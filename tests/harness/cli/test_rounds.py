"""What is said of each round of an investigation: which trainings of about how many, and how long the rest takes."""

from __future__ import annotations

import pytest

from numdrift.harness.cli.investigate import CommandLineProgress


def test_each_round_says_which_trainings_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1000.0
    monkeypatch.setattr("numdrift.harness.cli.investigate.time.monotonic", lambda: now)
    progress = CommandLineProgress(quiet=False, expected=5)
    progress.round("modes", ["cpu", "compile"])
    now += 60
    progress.expects(100)  # seconds, from now on
    progress.round("each mode once more", ["cpu-again", "compile-from-cpu"])
    now += 60
    progress.round("without the culprits", ["compile-without"])
    now += 45  # more runs and more time than were expected
    progress.round("again", ["compile-again"])
    assert capsys.readouterr().err.splitlines() == [
        "modes (runs 1 to 2 of about 5):",
        "each mode once more (runs 3 to 4 of about 5, about 2 min left):",
        "without the culprits (run 5 of about 5, about 40 s left):",
        "again (run 6 of about 6):",
    ]


def test_where_nothing_is_expected_no_number_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    CommandLineProgress(quiet=False).round("each mode once more", ["cpu-again"])
    assert capsys.readouterr().err == "each mode once more:\n"


@pytest.mark.parametrize("quiet", [False, True])
def test_after_an_interruption_the_last_verdicts_are_said(quiet: bool, capsys: pytest.CaptureFixture[str]) -> None:
    progress = CommandLineProgress(quiet=quiet)
    progress.say("compile against cpu: undecided: no step was scored")
    progress.say("lazy against cpu: identical: everything has the same bits")
    progress.say("each mode once more: runs against the clock")
    progress.say("compile against cpu: rounding: the largest drift is 2.1 times the noise")
    before = capsys.readouterr().err
    progress.interrupted()
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:3] == [
        "  compile against cpu: rounding: the largest drift is 2.1 times the noise",
        "  lazy against cpu: identical: everything has the same bits",
    ]
    assert len(lines) == 4 and "the same command goes on" in lines[3] and "--quick" in lines[3]
    assert bool(before) != quiet


def test_an_interruption_before_any_verdict_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    CommandLineProgress(quiet=True).interrupted()
    assert "no verdict yet" in capsys.readouterr().err
