"""What is measured of an investigation, and what the page makes of it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from . import memory
from .benchmark import phases_of
from .memory import peak_of
from .page import PHASES, Taken, page
from .workloads import DEEP, ROOT, WORKLOADS


def taken(way: str, seconds: float, number: int = 0, trainings: int = 4) -> Taken:
    return Taken("sam_tanh", number, way, seconds, 2 * seconds, trainings, 40, "rounding", "aten.sum (backward)")


def test_a_row_has_the_medians_of_the_rounds_and_of_their_ratios() -> None:
    rounds = [(1.0, 3.0, 8.0), (2.0, 3.0, 20.0), (2.0, 2.0, 24.0)]
    text = page(
        [
            taken(way, seconds, number)
            for number, values in enumerate(rounds)
            for way, seconds in zip(("bare 0", "bare 1", "numdrift"), values, strict=True)
        ],
        "measured today",
    )
    assert "| sam_tanh | 3 | 4.0 s (4.0 to 5.0) | 20.0 s (8.0 to 24.0) | 4.00 | 4.00 | 4 | 40 | rounding |" in text
    assert "- sam_tanh: met, 4.00 times the bare time, where 4 is allowed" in text
    assert "- sam_tanh: met, 4 runs of 2 modes, where 4 are allowed" in text


@pytest.mark.parametrize(("seconds", "words"), [(10.0, "met, 0.50 times"), (11.0, "**missed**, 0.55 times")])
def test_half_the_bisectors_time_meets_the_goal(seconds: float, words: str) -> None:
    text = page([taken("bare 0", 1), taken("numdrift", seconds), taken("bisector", 20)], "measured today")
    assert (
        f"- sam_tanh: {words} the time of CompilerBisector's `run` (20.0 s; 20.0 to 20.0 s), where 0.5 is allowed"
        in text
    )


def test_a_page_says_what_is_missed() -> None:
    deep = Taken(DEEP.name, 0, "numdrift", 60, 0, 0, 0, gib=9.0)
    text = page([taken("bare 0", 1), taken("numdrift", 5, trainings=5), deep], "measured today")
    assert "- sam_tanh: **missed**, 5.00 times" in text
    assert "- sam_tanh: **missed**, 5 runs of 2 modes" in text
    assert "- memory: **missed**, 9.00 GiB" in text


def test_a_round_that_was_cut_off_does_not_count() -> None:
    text = page([taken("bare 0", 1), taken("numdrift", 2), taken("bare 0", 9, number=1)], "measured today")
    assert "| sam_tanh | 1 | 1.0 s (1.0 to 1.0) | 2.0 s (2.0 to 2.0) |" in text


def test_memory_is_that_of_all_processes_and_what_they_share_counts_once() -> None:
    # given 64 MiB in a process, which two children share with it, and 32 MiB more in one of these
    script = """
import os, time
shared = bytearray(2**26)
shared[::4096] = b"x" * 2**14
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        own = bytearray(2**25)
        own[::4096] = b"x" * 2**13
        time.sleep(1)
        os._exit(0)
    time.sleep(1)
    os._exit(0)
time.sleep(1)
raise SystemExit(5)
"""
    # when
    alone, _ = peak_of([sys.executable, "-c", "import time; time.sleep(0.5)"], os.environ, Path.cwd())
    peak, code = peak_of([sys.executable, "-c", script], os.environ, Path.cwd())
    # then
    assert code == 5
    assert 2**26 + 2**25 <= peak - alone < 2**26 + 2**25 + 2**24


def test_what_ends_while_it_is_read_leaves_no_page_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a second process that ends after the first was read, so that all they shared is the first one's share again
    alive = iter([[1, 2], [1], [1], [1], [1], [1]])
    monkeypatch.setattr(memory, "descendants", lambda root: next(alive, [1]))
    monkeypatch.setattr(memory, "proportional_bytes", lambda process: 2**20 * process)
    # when, then: three MiB were never there at a time
    assert peak_of([sys.executable, "-c", "import time; time.sleep(0.5)"], os.environ, Path.cwd()) == (2**20, 0)


def test_every_workload_is_there_and_aims_at_something() -> None:
    for one in WORKLOADS:
        assert (ROOT / one.script).exists(), one.script
        assert len(one.bare) == len(one.modes)
        assert one.times_bare or one.seconds or one.ordinary


def test_the_goals_of_an_ordinary_model_are_of_its_verdict_its_causes_and_its_memory() -> None:
    # given 50 s of bare scripts, a verdict after 130 s and causes after 250 s
    phases = dict(zip(PHASES, (50.0, 60.0, 20.0, 60.0, 60.0), strict=True))
    bare = [Taken("unet", 0, f"bare {mode}", 25.0, 25.0, 1, 0, gib=1.0 + mode) for mode in range(2)]
    answer = Taken(
        "unet", 0, "numdrift", 250.0, 0, 4, 40, "beyond-rounding", "aten.mul (forward)", 5.0, 0.5, 0.125, phases
    )
    text = page([*bare, answer], "measured today")
    assert "- unet: the verdict: met, 130 s, where 130 s are allowed (2.2 times the bare time plus 20 s)" in text
    assert "- unet: the causes: met, 250 s, where 260 s are allowed (4 times the bare time plus 60 s)" in text
    assert "- unet: the first cause: met, aten.mul (forward)" in text
    assert "- unet: memory: met, 5.00 GiB at the peak of all processes together, 2.5 times" in text
    assert "- unet: disk: met, 0.50 GiB, 4.0 times the training's state" in text
    late = replace(answer, seconds=261.0, cause="none", gib=6.5, phases={**phases, "verdict": 21.0})
    text = page([*bare, late], "measured today")
    assert text.count("unet: the verdict: **missed**") == text.count("unet: the causes: **missed**") == 1
    assert "the first cause: **missed**, none" in text and "memory: **missed**, 6.50 GiB" in text


TOLD = """0.5 cpu: started
4 compile: ended, step 30  loss 2.57132
5 each mode once more:
8 cpu-again: ended, step 30  loss 2.57132
9 compile-from-cpu: ended, step 30  loss 2.57132
12 compile against cpu: rounding: the largest drift of 15 steps
13 localizing step 28 of compile
17   compile: 75 of 910 blocks compute different bits, because of 6 causes
25 compile against cpu: rounding
"""


def test_where_the_seconds_go_is_told_by_what_is_printed() -> None:
    told = [(float(at), line) for at, _, line in (one.partition(" ") for one in TOLD.splitlines())]
    phases = phases_of(told, 26.0)
    assert list(phases) == list(PHASES) and list(phases.values()) == [5, 4, 3, 5, 9]
    text = page([replace(taken("numdrift", 26.0), phases=phases), taken("bare 0", 5)], "measured today")
    assert "| sam_tanh | 5.0 s | 4.0 s | 3.0 s | 5.0 s | 9.0 s |" in text
    assert not phases_of(told[:4], 9.0)
    assert "Where the seconds go" not in page([taken("numdrift", 26), taken("bare 0", 5)], "measured today")
