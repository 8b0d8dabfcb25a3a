"""What the tapes show of calls whose results depend on chance, beneath a verdict that does not rest on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.investigate.evidence.pair_evidence import evidence_for
from numdrift.harness.investigate.experiments.investigation_plan import InvestigationRequest
from numdrift.harness.investigate.experiments.laboratory import Laboratory
from numdrift.harness.investigate.questions.question import Inquiry
from numdrift.harness.investigate.questions.taped_calls import TapedCalls
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.runs.recorded_run import RecordedRun
from numdrift.harness.runs.step_outcomes import read_noise_record

from .test_mode_spreads import CALL, FORCED, ITSELF
from .written_evidence import AGAIN, HARMLESS, Outcome, Study, changed, noise_record, only_pair, resynced, training

READ = {
    "made_by": {"op": "aten.empty.memory_format", "line": "train.py:7", "phase": "forward", "module": "net"},
    "read_by": {"op": "aten.mul.Tensor", "line": "train.py:9", "phase": "forward", "module": "net"},
}


def study(folder: Path, **facts: Any) -> Sequence[RecordedRun]:
    """Write a pair whose reference does not repeat by about a rounding; `facts` are added to its noise file."""
    written = Study(folder)
    reference, free = training(), training(apart_from=1)
    runs = [written.run("cpu", reference), written.run("compile", free)]
    written.make(AGAIN, changed(reference, 2, losses=(1.0 + 2.0**-20,)))
    noise = {**noise_record(0), "unrepeatable": [CALL], "settled": True, **facts}
    outcomes = dict.fromkeys(HARMLESS, Outcome())
    written.make(ITSELF, reference, outcomes, noises=[noise], events=resynced(outcomes))
    written.make(Experiment("again", "compile"), free)
    scores = {step: Outcome(z) for step, z in HARMLESS.items()}
    written.make(FORCED, free, scores, noises=[noise], events=resynced(HARMLESS))
    return runs


def calls(spread: float | None, error: float | None) -> list[Mapping[str, Any]]:
    return [{**CALL, "spread_rho": spread, "error_rho": error}]


def test_a_read_of_unwritten_memory_is_a_finding_beside_the_verdict(tmp_path: Path) -> None:
    pair = only_pair(study(tmp_path, unwritten=[READ]))
    assert pair.verdict == "rounding"
    found = [culprit for culprit in pair.culprits if culprit.kind == "nondeterminism"]
    assert {(culprit.name, culprit.what, culprit.op, culprit.source) for culprit in found} == {
        ("cpu", "unfilled", "aten.empty", "train.py:7"),
        ("compile", "unfilled", "aten.empty", "train.py:7"),
    }
    # both sides do it, which is said once
    [sentence] = [text for text in pair.text if "enter the results" in text]
    assert sentence.startswith("cpu and compile: in step 0 aten.empty in the forward of net, ")
    assert "aten.mul in the forward of net, " in sentence
    assert sentence.endswith("remedy: fill it before it is read (torch.zeros in place of torch.empty)")


@pytest.mark.parametrize(
    ("spread", "error", "text"),
    [
        (300.0, 2.0, "3e+02 times as far apart as the order of its additions explains"),
        (1.0, 40.0, "40 times as far from double as the order of its additions explains"),
    ],
)
def test_a_call_that_varies_by_more_than_its_order_is_a_finding(
    tmp_path: Path, spread: float, error: float, text: str
) -> None:
    pair = only_pair(study(tmp_path, unrepeatable=calls(spread, error)))
    assert pair.verdict == "rounding"
    [sentence] = [sentence for sentence in pair.text if "order of its additions" in sentence]
    assert text in sentence and sentence.startswith("cpu and compile: ")
    assert [(culprit.name, culprit.op) for culprit in pair.culprits] == [
        ("cpu", "aten.index_put"), ("compile", "aten.index_put"),
    ]  # fmt: skip


@pytest.mark.parametrize(("spread", "error"), [(1.5, 15.0), (None, None)])
def test_a_different_order_is_none(tmp_path: Path, spread: float | None, error: float | None) -> None:
    pair = only_pair(study(tmp_path, unrepeatable=calls(spread, error)))
    assert not pair.culprits and not any("order of its additions" in text for text in pair.text)


def test_it_is_asked_only_if_the_user_asks_for_it(tmp_path: Path) -> None:
    runs = study(tmp_path)
    inquiry = Inquiry(evidence_for(*runs), None, only_pair(runs))
    for poison in (False, True):
        plan = InvestigationRequest(script="train.py", poison=poison)
        assert not TapedCalls().asks(inquiry, plan)  # no step has a tape
    (evidence_for(*runs).made["a"][ITSELF].path / "tapes").mkdir(exist_ok=True)
    (evidence_for(*runs).made["a"][ITSELF].path / "tapes/tape-000000.safetensors").write_bytes(b"")
    inquiry = Inquiry(evidence_for(*runs), None, only_pair(runs))
    assert [TapedCalls().asks(inquiry, InvestigationRequest(script="train.py", poison=on)) for on in (False, True)] == [
        False, True,
    ]  # fmt: skip


class Workers:
    """Workers that answer every request with one read, and keep the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[Path, Mapping[str, Any]]] = []

    def ask(self, run: Path, request: Mapping[str, Any]) -> Mapping[str, Any]:
        self.requests.append((run, request))
        return {"unwritten": [READ]}


class Progress:
    def say(self, text: str) -> None:
        raise AssertionError(text)


def test_the_workers_of_taped_steps_look_for_reads_once(tmp_path: Path) -> None:
    runs = study(tmp_path)
    taped = evidence_for(*runs).made["a"][ITSELF].path
    (taped / "tapes/tape-000000.safetensors").write_bytes(b"")
    inquiry = Inquiry(evidence_for(*runs), None, only_pair(runs))
    laboratory: Any = Laboratory(Progress(), 1, None, workers=Workers())  # type: ignore[arg-type]
    before = read_noise_record(taped, 0)
    for _ in range(2):
        TapedCalls().look(laboratory, [inquiry], InvestigationRequest(script="train.py", poison=True))
    assert laboratory.workers.requests == [(taped, {"request": "unwritten", "step": 0})]
    # the noise of the step stays as it was measured
    assert before is not None and read_noise_record(taped, 0) == {**before, "unwritten": [READ]}
    assert any("enter the results" in text for text in only_pair(runs).text)
