"""What the comparison with golden files notices, and what it lets pass."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .cases import Case, Said
from .normalise import differences, normalised, normalised_text, text_differences

FOLDER = Path("/somewhere/else/one")
CASE = Case("one", (Path("train.py"),), (), ())


def culprit(op: str, share: float, places: list[str]) -> dict[str, Any]:
    return {
        "op": op,
        "phase": "backward",
        "module": places[0],
        "places": places,
        "kind": "kernel",
        "significance": "beyond-rounding" if share > 0.5 else "rounding",
        "sites": 4,
        "source": f"{FOLDER}/reproducers/train.py:11",
        "step": 1,
        "bias": {"a": -0.3, "b": 1.1},
        "share_of_drift": share,
        "proof": {"swap_in": {"holds": True, "score_after": 1234.5}},
    }


CONTENT: dict[str, Any] = {
    "schema": 1,
    "training_runs": 7,
    "seconds": 90.4,
    "runs": {"cpu": {"status": "complete", "seconds": 12.3}},
    "pairs": [
        {
            "verdict": "beyond-rounding",
            "text": ["the largest drift of 3 steps is 1.27e+04 times the noise (gradient 0 layers.0.bias, step 1)"],
            "threshold": 16.07,
            "score": 12744.4,
            "first_significant_step": 1,
            "referee": {"closer": "a", "median": 1.5},
            "steps": [
                {
                    "step": 1,
                    "score": 12744.4,
                    "tensor": "loss 0",
                    "tensors": [
                        {"name": "loss 0", "score": 12744.4},
                        {"name": "gradient 0 bias", "score": 0.3},
                    ],
                }
            ],
            "culprits": [
                culprit("aten.tanh_backward", 0.99, ["layers.3"]),
                culprit("aten.sum", 0.04, ["layers.4", "layers.2"]),
                culprit("aten.mul", 0.03, ["layers.2"]),
            ],
        }
    ],
}
STDOUT = f"""\
mode  verdict          largest z
cpu   beyond-rounding       12.3

  1. aten.tanh_backward in the backward of layers.3, reproducers/train.py:11 (99 % of the drift)
     when it is swapped into cpu, the drift appears (z 1.25e+04)
  2. aten.sum in the backward of layers.4, {FOLDER}/reproducers/train.py:11 (4 % of the drift)
     10.1 ULP from double in cpu
  3. aten.mul in the backward of layers.2, reproducers/train.py:11 (3 % of the drift)
     0.5 ULP from double in cpu
  trained to the end with kernel.sum=aten, compile equals cpu bit for bit

7 training runs, 21 steps, 90.4 s
"""
STDERR = """\
cpu: started
cpu understood the script as follows:
  loss        the tensor that backward() starts from (train.py:11)
cpu: step 1  loss 2.32983  2.3 s/step
cpu: ended, step 3  loss 2.31541  2.3 s/step  12.3 s
compile: started
"""
SAID = Said(1, CONTENT, STDOUT, STDERR, FOLDER)

Change = Callable[[dict[str, Any], dict[str, Any]], object]


def changed(change: Change) -> Said:
    """What was said with its content changed; the change gets the content and the first pair."""
    content = copy.deepcopy(CONTENT)
    change(content, content["pairs"][0])
    return dataclasses.replace(SAID, content=content)


def compared(said: Said) -> list[str]:
    """The lines that the comparison with SAID gives."""
    texts = text_differences(normalised_text(CASE, SAID), normalised_text(CASE, said))
    return differences(normalised(SAID), normalised(said)) + texts


CHANGES: dict[str, Change] = {
    "verdict": lambda _, pair: pair.update(verdict="rounding"),
    "first_significant_step": lambda _, pair: pair.update(first_significant_step=2),
    "culprits[0].op": lambda _, pair: pair["culprits"][0].update(op="aten.tanh"),
    "culprits[0].phase": lambda _, pair: pair["culprits"][0].update(phase="forward"),
    "culprits[0].module": lambda _, pair: pair["culprits"][0].update(module="layers.1"),
    "culprits[1].places": lambda _, pair: pair["culprits"][2].update(places=["layers.1"]),
    "culprits[0].source": lambda _, pair: pair["culprits"][0].update(source="reproducers/train.py:12"),
    "culprits[0].step": lambda _, pair: pair["culprits"][0].update(step=0),
    "proof.swap_in.holds": lambda _, pair: pair["culprits"][0]["proof"]["swap_in"].update(holds=False),
    "proof.swap_in.score_after": lambda _, pair: pair["culprits"][0]["proof"]["swap_in"].update(score_after=9.0),
    "culprits[0].sites": lambda _, pair: pair["culprits"][0].update(sites=5),
    "referee.closer": lambda _, pair: pair["referee"].update(closer="b"),
    "referee: is gone": lambda _, pair: pair.pop("referee"),
    "steps: is gone": lambda _, pair: pair.pop("steps"),
    "culprits: is gone": lambda _, pair: pair.pop("culprits"),
    "culprits: were 3, are 2": lambda _, pair: pair["culprits"].pop(),
    "text[0]": lambda _, pair: pair.update(text=["the largest drift of 3 steps is 1.27e+04 times the bound"]),
    "steps[0].tensor": lambda _, pair: pair["steps"][0].update(tensor="loss 1"),
    "steps[0].tensors.beyond": lambda _, pair: pair["steps"][0]["tensors"][1].update(score=99.0),
    "steps[0].tensors.fields": lambda _, pair: pair["steps"][0]["tensors"][1].update(why=""),
    "score: was 10000.0, is 0.0": lambda _, pair: pair.update(score=0.0),
    "training_runs: was 7, is 8": lambda content, _: content.update(training_runs=8),
    "schema: is gone": lambda content, _: content.pop("schema"),
    "investigation.more: is new": lambda content, _: content.update(more=None),
    "runs.cpu.status": lambda content, _: content["runs"]["cpu"].update(status="killed"),
}


@pytest.mark.parametrize("said", CHANGES)
def test_a_change_is_noticed_and_named(said: str) -> None:
    found = compared(changed(CHANGES[said]))
    assert any(said in line for line in found), found


def test_a_smaller_culprit_in_first_place_is_noticed() -> None:
    def exchange(_: dict[str, Any], pair: dict[str, Any]) -> None:
        first, second, third = pair["culprits"]
        first["share_of_drift"], second["share_of_drift"] = 0.04, 0.99
        pair["culprits"] = [second, first, third]

    assert any("culprits[0].op" in line for line in compared(changed(exchange)))


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("beyond-rounding ", "rounding "),
        ("with kernel.sum=aten", "with kernel.mul=aten"),
        ("of layers.3", "of layers.1"),
        ("train.py:11 (99", "train.py:12 (99"),
        ("     10.1 ULP from double in cpu\n", ""),
        ("the drift appears", "the drift does not appear"),
    ],
)
def test_another_word_is_noticed(was: str, now: str) -> None:
    assert was in STDOUT
    found = compared(dataclasses.replace(SAID, stdout=STDOUT.replace(was, now)))
    assert any(line.startswith("-") for line in found), found


def test_another_exit_code_and_another_line_on_standard_error_are_noticed() -> None:
    assert compared(dataclasses.replace(SAID, exit_code=0)) == ["exit_code: was 1, is 0"]
    said = compared(dataclasses.replace(SAID, stderr=STDERR + "cpu: a warning\n"))
    assert "+cpu: a warning" in said


def test_what_varies_is_let_pass() -> None:
    # given other times, digits, another folder, more progress, and small causes in another order
    content = copy.deepcopy(CONTENT)
    pair = content["pairs"][0]
    content["seconds"], pair["score"], pair["steps"][0]["score"] = 5.0, 2744.4, 2744.4
    pair["steps"][0]["tensors"].reverse()
    pair["culprits"][1]["module"] = "layers.2"
    pair["culprits"][1]["bias"]["a"] = 2.0
    pair["culprits"][1]["source"] = f"{FOLDER}/reproducers/train.py:15"
    pair["culprits"][1]["sites"] = 3
    pair["referee"]["median"] = 0.01
    pair["culprits"][1:] = reversed(pair["culprits"][1:])
    lines = STDOUT.replace("90.4 s", "8 s").replace("1.25e+04", "987").replace("       12.3", "     9").split("\n")
    lines[5:9] = [line.replace("2.", "3.", 1) for line in lines[7:9]] + lines[5:7]
    again = "cpu: step 2  loss 2.31983  4.3 steps/s\ncpu also:\n  step        ends when SGD.step() returns\n"
    whole = STDERR.replace("(train.py:11)\n", "(train.py:11)\n  step        ends when SGD.step() returns\n")
    pieces = STDERR.replace("(train.py:11)\n", f"(train.py:11)\n{again}")
    other = Path("/another/folder")

    def moved(text: str) -> str:
        return text.replace(str(FOLDER), str(other))

    for one in pair["culprits"]:
        one["source"] = moved(one["source"])
    # then
    before = dataclasses.replace(SAID, stderr=whole)
    after = Said(1, content, moved("\n".join(lines)), pieces, other)
    assert differences(normalised(before), normalised(after)) == []
    assert normalised_text(CASE, before) == normalised_text(CASE, after)


def test_exactly_every_digit_counts_but_times_and_places_do_not() -> None:
    said = changed(lambda content, pair: (content.update(seconds=1.0), pair.update(score=12744.5)))
    assert differences(normalised(SAID, exact=True), normalised(said, exact=True)) == []  # within the factor
    exact = [normalised(one, exact=True)["investigation"] for one in (SAID, said)]
    assert [one["pairs"][0]["score"] for one in exact] == [12744.4, 12744.5]
    assert "seconds" not in exact[0]
    text = normalised_text(CASE, SAID, exact=True)
    assert "7 training runs, 21 steps, # s" in text
    assert str(FOLDER) not in text
    assert "2.3 s/step" not in text


def test_the_tensor_that_differs_most_by_rounding_is_not_compared() -> None:
    sentence = "3 steps is 1.4 times the reference's own rounding noise ({}; 21.1 would be a fault)\n"
    one, other = (sentence.format(name) for name in ("gradient 1 layers.2.bias, step 2", "loss 0, step 1"))
    assert compared(dataclasses.replace(SAID, stdout=STDOUT + one)) == compared(
        dataclasses.replace(SAID, stdout=STDOUT + other)
    )
