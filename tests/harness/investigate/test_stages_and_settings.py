from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numdrift.harness.errors import UsageError
from numdrift.harness.investigate.experiments.investigation_plan import InvestigationRequest
from numdrift.harness.investigate.experiments.search_time import SearchTime
from numdrift.harness.investigate.questions import stages_and_settings
from numdrift.harness.investigate.questions.setting_axes import (
    CPU_SETTINGS,
    DEVICE_SETTINGS,
    GRAPH_CACHE,
    UNCOMPILED,
    folder_name,
    is_possible,
    variants_of,
    with_setting,
)
from numdrift.harness.investigate.questions.stages_and_settings import (
    NO_OPTION,
    StagesAndSettings,
    setting_culprits,
    setting_sentences,
)
from numdrift.harness.investigate.words.culprit_words import lines_of
from numdrift.harness.records.modes.mode_spec import LADDER, parse_mode
from numdrift.harness.records.modes.setting_keys import CUDA_AXES
from numdrift.harness.records.results.culprit import Culprit
from numdrift.harness.records.results.findings import CompilerScores
from numdrift.harness.torch_private.compiler.compiling import inductor_option


@pytest.mark.parametrize("text", ["compile", "compile,contract=fast", "c=compile,inductor.cpp.simdlen=1"])
def test_every_other_stage_and_setting_is_a_mode(text: str) -> None:
    spec = parse_mode(text)
    found = dict(variants_of(spec, parse_mode("cpu")))
    assert len(found) == len(LADDER) - 1 + len(CPU_SETTINGS)
    assert spec not in found.values()
    assert all(parse_mode(str(one)) == one for one in found.values())
    assert len(set(map(str, found.values()))) == len(found)


@pytest.mark.parametrize(
    "text", ["compile,device=cuda", "compile,device=cuda,inductor.triton.cudagraphs=true,contract=off,tf32=off"]
)
def test_code_for_a_device_has_the_settings_of_a_device(text: str) -> None:
    spec, reference = parse_mode(text), parse_mode("cuda")
    found = {key: one for key, one in variants_of(spec, reference) if not key.startswith("backend=")}
    names = {key.partition("=")[0] for key in found}
    assert names <= {*DEVICE_SETTINGS, *CUDA_AXES} and "inductor.cpp.simdlen" not in names
    # those that any torch has
    assert {"contract", "emulate_casts", "inductor.triton.persistent_reductions", "tf32", "sdpa"} <= names
    assert all(parse_mode(str(one)) == one != spec for one in found.values())
    switched = {"inductor.triton.cudagraphs", "contract", "tf32"} if spec.inductor else set()
    stated = {"inductor.triton.cudagraphs=off", "contract=fast", "tf32=convolutions"}
    assert switched == set() or stated <= found.keys(), "what is so already is tried the other way"


def test_an_eager_mode_of_a_device_has_the_settings_that_choose_kernels() -> None:
    assert list(dict(variants_of(parse_mode("cuda"), parse_mode("cpu")))) == [
        "tf32=off", "sdpa=math", "cudnn=off", "benchmark=off", "reduced_precision_reduction=off", "deterministic=on",
    ]  # fmt: skip
    assert list(dict(variants_of(parse_mode("xpu"), parse_mode("cpu")))) == ["sdpa=math", "deterministic=on"]
    # a value that contradicts what the mode states is no other setting of it
    found = dict(variants_of(parse_mode("cuda,matmul_precision=highest,tf32=off"), parse_mode("cpu")))
    assert all(parse_mode(str(one)) == one for one in found.values())


def test_an_option_that_torch_lacks_is_not_tried() -> None:
    spec = parse_mode("compile,device=cuda")
    possible = [text for text in DEVICE_SETTINGS if is_possible(f"{text}={DEVICE_SETTINGS[text][0]}", spec)]
    assert {"contract", "emulate_casts", "inductor.split_reductions", "inductor.triton.cudagraphs"} <= {*possible}
    assert not is_possible("inductor.split_reductions=maybe", spec)
    assert not is_possible("inductor.eager_numerics.of_the_future=on", spec)
    with pytest.raises(UsageError, match=NO_OPTION):  # as a process of another torch says it
        inductor_option("eager_numerics.of_the_future", "on")


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
    assert any("code generation causes the drift" in reason for reason in culprit.reasons)
    said = "inductor.cpp.simdlen=1 removes the drift" in setting_sentences(found, 20.0)[1]
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


def test_a_setting_of_kernels_is_a_culprit_of_its_own_kind() -> None:
    found = CompilerScores(step=3, score=400.0, stages={}, settings={"tf32=off": 2.0, "cudnn=off": 390.0})
    [culprit] = setting_culprits(found, ("cpu", "cuda"), 20.0)
    assert (culprit.kind, culprit.name, culprit.swapped) == ("setting", "the setting tf32", "tf32=off")
    assert culprit.is_way and culprit.is_proven and culprit.reasons == ["tf32=off removes the drift"]
    assert Culprit.from_json(culprit.to_json()).swapped == "tf32=off"
    [said] = setting_sentences(found, 20.0)
    assert said == "z of step 3 by settings of the device: tf32=off 2, cudnn=off 390; tf32=off removes the drift"
    assert lines_of(culprit, "cpu", "cuda")[-1] == "z 400 as it is, 2 with tf32=off"


def test_graphs_from_a_cache_are_blamed_on_the_cache() -> None:
    # any other setting changes the key of the cache
    found = replace(FOUND, settings={"graph_cache=off": 0.3, "contract=fast": 0.2})
    [culprit] = setting_culprits(found, ("cpu", "compile"), 20.0)
    assert (culprit.name, culprit.swapped) == ("torch.compile's cache of graphs", "graph_cache=off")


def test_within_rounding_there_is_none_to_blame() -> None:
    assert setting_culprits(FOUND, ("cpu", "compile"), 500.0) == []
    assert "takes" not in setting_sentences(FOUND, 500.0)[1]


@pytest.mark.parametrize("executions", [0, 5, 100])
def test_settings_are_left_out_when_the_time_is_over_but_no_stage(
    executions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a search whose time is over after so many executions
    asked: list[str] = []

    class Workers:
        def ask(self, run: Path, request: Mapping[str, Any]) -> dict[str, object]:
            asked.append(request["name"])
            return {}

    class Bench:
        workers = Workers()
        search = SearchTime(budget=10.0)
        progress = SimpleNamespace(say=lambda text: None)

        @property
        def has_time(self) -> bool:
            return len(asked) < executions

    specs = {"a": parse_mode("cpu"), "b": parse_mode("compile")}
    a, b = (SimpleNamespace(path=tmp_path / name, manifest=SimpleNamespace(label=name)) for name in specs)
    monkeypatch.setattr(stages_and_settings, "spec_of", lambda run: specs[run.path.name])
    monkeypatch.setattr(
        stages_and_settings, "settings_of", lambda evidence: CompilerScores(3, 90.0, {"eager": 0.0}, {})
    )
    monkeypatch.setattr(stages_and_settings, "holding", lambda *of: (tmp_path / "b", 3))
    evidence = SimpleNamespace(a=a, b=b, forced=None, several=lambda *of: [], only=lambda *of: None)
    inquiry: Any = SimpleNamespace(evidence=evidence, step=3, threshold=16.0)
    bench: Any = Bench()
    # when the step is executed with other stages and settings
    StagesAndSettings().look(bench, [inquiry], cast(InvestigationRequest, None))
    # then every stage is executed, and the settings that were left out are counted
    texts = [text for text, spec in variants_of(specs["b"], specs["a"]) if is_possible(text, spec)]
    never = f"backend={UNCOMPILED}", f"{GRAPH_CACHE}="
    tried = [folder_name(text) for text in texts if not text.startswith(never)]
    stages = sum(name.startswith("backend") for name in tried)
    count = min(len(tried), max(stages, executions))
    assert asked == tried[:count] and 0 < stages < len(tried)
    note = bench.search.note_of(tmp_path / "b")
    assert (f"step 3 with {len(tried) - count} of the compiler's settings was left out" in note) == (count < len(tried))
