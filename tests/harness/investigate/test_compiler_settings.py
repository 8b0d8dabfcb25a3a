from __future__ import annotations

from dataclasses import replace

import pytest

from numdrift.harness.investigate.compiler_settings import (
    SETTINGS,
    UNCOMPILED,
    setting_culprits,
    setting_sentences,
    variants_of,
    with_setting,
)
from numdrift.harness.records.findings import CompilerScores
from numdrift.harness.records.mode_spec import LADDER, parse_mode


@pytest.mark.parametrize("text", ["compile", "compile,contract=fast", "c=compile,inductor.cpp.simdlen=1"])
def test_every_other_stage_and_setting_is_a_mode(text: str) -> None:
    spec = parse_mode(text)
    found = dict(variants_of(spec, parse_mode("cpu")))
    assert len(found) == len(LADDER) - 1 + len(SETTINGS)
    assert spec not in found.values()
    assert all(parse_mode(str(one)) == one for one in found.values())
    assert len(set(map(str, found.values()))) == len(found)


@pytest.mark.parametrize("text", ["cpu", "lazy", "compile,backend=aot_eager"])
def test_what_inductor_does_not_compile_has_none(text: str) -> None:
    assert not list(variants_of(parse_mode(text), parse_mode("cpu")))


def test_a_stage_before_inductor_has_none_of_its_settings() -> None:
    spec = parse_mode("compile,contract=fast,inductor.max_fusion_size=1,decompose.tanh=off,kernel.sum=aten")
    assert str(with_setting(spec, "backend=aot_eager")) == "compile,backend=aot_eager,kernel.sum=aten"


FOUND = CompilerScores(
    step=3,
    score=400.0,
    stages={"eager": 0.0, "aot_eager": 0.0, "aot_eager_decomp_partition": 2.0},
    settings={"contract=fast": 400.0, "inductor.cpp.simdlen=1": 3.0},
)


NOTHING_HELPS = replace(FOUND, settings={"contract=fast": 400.0})


@pytest.mark.parametrize(
    ("found", "swapped"),
    [(FOUND, "inductor.cpp.simdlen=1"), (NOTHING_HELPS, "backend=aot_eager_decomp_partition")],
    ids=["setting", "stage"],
)
def test_the_setting_that_takes_a_drift_away_is_the_culprit_else_the_stage_that_makes_it(
    found: CompilerScores, swapped: str
) -> None:
    (culprit,) = setting_culprits(found, ("cpu", "compile"), 20.0)
    assert culprit.swapped == swapped
    assert culprit.significance == "beyond-rounding"
    assert culprit.proof is not None
    gone = culprit.proof.swap_out
    assert gone.score_before == 400.0
    assert gone.score_after is not None and gone.score_after < 20.0
    # either way it is told where the drift comes from
    assert any("code generation makes the drift" in reason for reason in culprit.reasons)
    said = "inductor.cpp.simdlen=1 takes the drift away" in setting_sentences(found, 20.0)[1]
    assert said is (found is FOUND)


@pytest.mark.parametrize(
    ("uncompiled", "alike", "blamed"), [(0.0, False, True), (None, True, True), (None, False, False)]
)
def test_capture_is_blamed_only_where_the_mode_without_the_compiler_is_known_to_be_right(
    uncompiled: float | None, alike: bool, blamed: bool
) -> None:
    stages = {"eager": 400.0, "aot_eager": 400.0, "aot_eager_decomp_partition": 400.0}
    known = {} if uncompiled is None else {UNCOMPILED: uncompiled}
    found = replace(NOTHING_HELPS, stages={**known, **stages})
    culprits = setting_culprits(found, ("cpu", "compile"), 20.0, alike=alike)
    assert [one.name for one in culprits] == (["torch.compile's stage eager"] if blamed else [])


def test_a_fault_that_the_mode_has_without_the_compiler_is_none_of_its_stages() -> None:
    stages = {UNCOMPILED: 400.0, "eager": 400.0, "aot_eager": 400.0, "aot_eager_decomp_partition": 400.0}
    assert setting_culprits(replace(NOTHING_HELPS, stages=stages), ("cpu", "compile"), 20.0, alike=False) == []


def test_within_rounding_there_is_none_to_blame() -> None:
    assert setting_culprits(FOUND, ("cpu", "compile"), 500.0) == []
    assert "takes" not in setting_sentences(FOUND, 500.0)[1]
