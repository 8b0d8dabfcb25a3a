"""Sentences about steps, said about calls."""

from __future__ import annotations

import pytest

from numdrift.harness.investigate.words.call_words import call_of, result_name, says


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("parameter output", "output"),
        ("parameter grad_x", "the gradient of x"),
        ("parameter written_states_0", "states_0 after the call"),
        ("buffer module.norm.running_mean", "norm.running_mean"),
        ("gradient 0 module.lin.bias", "the gradient of lin.bias"),
        ("parameter optimizedmodule.output_1", "output_1"),
        ("gradient 0 optimizedmodule_2.module.weight", "the gradient of weight"),
    ],
)
def test_names_of_results(name: str, words: str) -> None:
    assert result_name(name) == words


def test_sentences() -> None:
    labels = ["seed 0", "issue.py:12"]
    text = "beyond-rounding: the largest drift of 2 steps is 8 times the noise (parameter grad_x, step 2); the first such step is 0"
    assert says(text, labels) == (
        "beyond-rounding: the largest drift of 2 calls is 8 times the noise (the gradient of x, issue.py:12); the first "
        "such call is seed 0"
    )
    fault = "compile computes mul differently (ops.py:6): a proven fault from step 2 on; report it, with report.html"
    assert says(fault, labels) == (
        "compile computes mul differently (ops.py:6): a proven fault (first in issue.py:12); report it, with the text "
        "that --markdown writes"
    )
    unwritten = "in step 0 aten.copy_ in the optimizer reads uninitialized memory"
    assert says(unwritten, labels) == "in seed 0 the call returns uninitialized memory"
    assert says("compile differs from cpu from step 0 on by rounding alone", ["the call"]) == (
        "compile differs from cpu by rounding alone"
    )


def test_a_call_is_two_steps() -> None:
    assert [call_of(step, ["a", "b"]) for step in range(4)] == ["a", "a", "b", "b"]
    assert call_of(9, ["a"]) == "call 4"
