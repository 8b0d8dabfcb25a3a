"""The localization of a step: what is measured before its culprits are judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numdrift.harness.investigate.evidence.pair_evidence import EvidenceFolder, evidence_for
from numdrift.harness.investigate.experiments.laboratory import Laboratory
from numdrift.harness.investigate.questions import ops
from numdrift.harness.investigate.questions.ops import Ops
from numdrift.harness.investigate.questions.question import Inquiry
from numdrift.harness.runs.step_outcomes import noise_path, tape_path

from .written_evidence import AGAIN, compared_study, noise_record, only_pair
from .written_laboratory import PLAN, Quiet


@pytest.mark.parametrize(("step", "asked"), [(0, []), (3, [3])])
def test_a_step_is_measured_before_its_culprits_are_judged_by_its_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, asked: list[int]
) -> None:
    # given tapes of steps 0 and 3, and the noise of step 0 alone
    _, runs = compared_study(tmp_path, {0: 0.5, 3: 1.0})
    holding = EvidenceFolder.of(runs[0]).path / AGAIN.name
    for taped in (0, 3):
        tape_path(holding, taped).touch()
    measured, localized = list[int](), list[bool]()

    def ask(run: Path, request: Mapping[str, Any]) -> Mapping[str, Any]:
        assert run == holding and request["request"] == "noise"
        measured.append(request["step"])
        return {"noise": noise_record(request["step"])}

    @contextmanager
    def localizer(inquiry: Inquiry, config: Any, *rest: Any, **options: Any) -> Iterator[None]:
        localized.append(noise_path(Path(config.noise), inquiry.step).exists())
        yield

    monkeypatch.setattr(ops, "localizer", localizer)
    monkeypatch.setattr(ops, "holding", lambda laboratory, inquiry, side: (holding, tmp_path / "socket"))
    laboratory = SimpleNamespace(
        workers=SimpleNamespace(ask=ask), jobs=1, has_room=lambda specs: True, progress=Quiet(), seconds_left=None
    )
    laboratory.scripts = lambda *specs: tmp_path
    inquiry = Inquiry(evidence_for(runs[0], runs[1]), step, only_pair(runs))
    # when the step is localized
    Ops().look(cast(Laboratory, laboratory), [inquiry], PLAN)
    # then its noise is there
    assert measured == asked and localized == [True]
