"""What differs between two interpreters is said, and nothing that is equal or that one of them does not tell."""

from __future__ import annotations

from numdrift.harness.records.codec import plain, read
from numdrift.harness.records.run.interpreters import VERSION, TwoInterpreters, are_two, differences

NEW = {"torch": "2.13.0+cpu", "python": "3.11.4", "MKL": "2024.2", "oneDNN": "3.12.0", "threads": 2, "foreach": False}


def test_what_differs_is_said_torch_first_and_what_is_equal_is_not() -> None:
    old = {**NEW, "oneDNN": "3.7.1", "torch": "2.9.0+cu128", "threads": 1, "foreach": True}
    assert differences(NEW, old) == [
        "torch 2.13.0+cpu against 2.9.0+cu128",
        "oneDNN 3.12.0 against 3.7.1",
        "threads 2 against 1",
        "foreach on the CPU by default no against yes",
    ]
    # what a mode has stated is the mode's
    assert "threads 2 against 1" not in differences(NEW, old, ("threads",))
    assert differences(NEW, NEW) == []


def test_a_fact_that_only_one_tells_is_no_difference() -> None:
    recorded_long_ago = {"torch": "2.13.0+cpu", "python": "3.11.4"}
    assert differences(NEW, recorded_long_ago) == [] and not are_two(NEW, recorded_long_ago)
    assert differences(NEW, {}) == [] and not are_two({}, {})


def test_threads_and_settings_alone_make_no_other_interpreter() -> None:
    assert not are_two(NEW, {**NEW, "threads": 1, "foreach": True})
    assert are_two(NEW, {**NEW, "MKL": "not built in"})


def test_it_is_written_and_read_again() -> None:
    two = TwoInterpreters({"a": "2.13.0", "b": "2.9.0"}, ("torch 2.13.0 against 2.9.0",), VERSION)
    assert plain(two) == {
        "torch": {"a": "2.13.0", "b": "2.9.0"},
        "differences": ["torch 2.13.0 against 2.9.0"],
        "blame": "version",
    }
    again = read(TwoInterpreters, plain(two))
    assert again.sentence("new", "old") == "the interpreters of new and old differ: torch 2.13.0 against 2.9.0"
    assert again.are_two_versions
