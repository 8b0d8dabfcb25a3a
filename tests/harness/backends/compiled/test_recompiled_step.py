"""A recorded step whose compiled code is compiled anew, compared with trainings that take the step so by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from numdrift.harness.backends.compiled.node_kernels import RecordedKernels
from numdrift.harness.backends.compiled.recompiled_step import recompiled_as
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.tape.recording import compiled_graphs
from numdrift.harness.tape.replaying.replay import is_same
from numdrift.harness.tape.step_settings import settings_of_step
from numdrift.harness.tape.tape import NotReplayable, Tape
from numdrift.harness.torch_private.compiler.compiling import compile_in_place

from ...tape.test_compiled_tapes import INDUCTOR, KINDS, numerics, taped

OWN = parse_mode(INDUCTOR)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Step 1 of a training, and the state that it began in."""

    kind: str
    tape: Tape
    kernels: RecordedKernels
    before: Mapping[str, torch.Tensor]

    def recompiled(self, mode: str) -> Mapping[str, torch.Tensor]:
        assert self.kernels.captured is not None
        with numerics(fallback_random=True):
            return recompiled_as(parse_mode(mode), self.tape, self.kernels.captured)

    def trained(self, backend: str, **settings: object) -> Mapping[str, torch.Tensor]:
        """What the step gives where a training of that backend begins in its state."""
        torch._dynamo.reset()
        torch.manual_seed(0)
        training = KINDS[self.kind]()
        training.values()  # the generator goes on, and the optimizer has a state
        with torch.no_grad():
            for name, tensor in training.state():
                tensor.copy_(self.before[name])
        if backend != "none":
            compile_in_place(training.model, backend)
        with numerics(fallback_random=True), torch._inductor.config.patch(settings):
            return training.values()


@pytest.fixture(
    scope="module", params=["broken", "sam", pytest.param("autocast", marks=pytest.mark.exhaustive), "images"]
)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    run = taped(request.param, INDUCTOR, tmp_path_factory.mktemp(request.param))
    return Recorded(request.param, run.tape, run.kernels, run.found[0])


def differing(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> list[str]:
    assert found.keys() == expected.keys()
    return [name for name, one in expected.items() if not is_same(found[name], one)]


@pytest.mark.slow
def test_compiled_as_it_was_it_gives_its_own_bits(recorded: Recorded) -> None:
    assert differing(recorded.recompiled(INDUCTOR), recorded.tape.expected()) == []


def test_without_any_compiler_it_gives_what_the_plain_training_gives(recorded: Recorded) -> None:
    assert differing(recorded.recompiled("compile,backend=eager"), recorded.trained("none")) == []


@pytest.mark.slow
def test_a_stage_gives_what_a_training_with_it_gives(recorded: Recorded) -> None:
    for backend in ("aot_eager", "aot_eager_decomp_partition"):
        assert differing(recorded.recompiled(f"compile,backend={backend}"), recorded.trained(backend)) == []


def test_a_setting_gives_what_a_training_with_it_gives(recorded: Recorded) -> None:
    found = recorded.recompiled(f"{INDUCTOR},inductor.cpp.simdlen=1")
    assert differing(found, recorded.trained("inductor", **{"cpp.simdlen": 1})) == []
    assert torch._inductor.config.cpp.simdlen != 1  # it is put back


def test_a_setting_of_kernels_is_in_force_meanwhile(recorded: Recorded) -> None:
    found = recorded.recompiled("compile,backend=eager,mkldnn=off")
    assert torch.backends.mkldnn.enabled
    with settings_of_step({"mkldnn": False}):
        assert differing(found, recorded.trained("none")) == []
    others = differing(found, recorded.trained("none"))
    assert bool(others) is (recorded.kind == "images"), "convolutions are others without oneDNN"


def test_a_graph_that_cannot_be_kept_is_compiled_and_its_step_is_not_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given
    def refuse(graph: torch.fx.Graph) -> torch.fx.GraphModule:
        raise RuntimeError("no copy of this")

    monkeypatch.setattr(compiled_graphs, "undescribed_graph", refuse)
    # when the step is recorded, then nothing of the training is another
    run = taped("averaged", INDUCTOR, tmp_path)
    assert not run.differing()
    # and it is not taken for one whose graphs are all there
    with pytest.raises(NotReplayable, match="dynamo did not capture"):
        run.kernels.recompiled(run.tape, parse_mode("compile,backend=eager"), OWN)
