from __future__ import annotations

import pytest

from numdrift.harness.investigate.compiler_settings import (
    SETTINGS,
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


def test_the_stage_that_makes_a_drift_and_the_setting_that_takes_it_away_are_culprits() -> None:
    setting, stage = setting_culprits(FOUND, ("cpu", "compile"), 20.0)
    assert setting.swapped == "inductor.cpp.simdlen=1"
    assert stage.swapped == "backend=aot_eager_decomp_partition"
    for culprit in (setting, stage):
        assert culprit.significance == "beyond-rounding"
        assert culprit.proof is not None
        gone = culprit.proof.swap_out
        assert gone.score_before == 400.0
        assert gone.score_after is not None and gone.score_after < 20.0
    assert "inductor.cpp.simdlen=1 takes the drift away" in setting_sentences(FOUND, 20.0)[1]


def test_within_rounding_there_is_none_to_blame() -> None:
    assert setting_culprits(FOUND, ("cpu", "compile"), 500.0) == []
    assert "takes" not in setting_sentences(FOUND, 500.0)[1]
