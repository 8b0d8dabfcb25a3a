"""A setting of torch that the two sides have otherwise is one cause, whichever ops it makes others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numdrift.harness.drift.step_noise import Noise
from numdrift.harness.investigate.questions.whole_trainings import remedy
from numdrift.harness.localize.causes.localized_step import LocalizedStep
from numdrift.harness.localize.causes.setting_difference import setting_differences, statements
from numdrift.harness.localize.execute.step_side import StepSide
from numdrift.harness.localize.execute.worker import Worker
from numdrift.harness.localize.execute.worker_calls import WorkerCalls
from numdrift.harness.localize.localize_step import localize_step
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.results.culprit import Culprit, CulpritSetting
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.tape.files.tape_file import read_tape, tape_file, write_tape
from numdrift.harness.tape.serving.requests import Requests
from numdrift.harness.tape.serving.wire import Message
from numdrift.harness.tape.step_settings import (
    current_settings,
    device_settings,
    put_settings,
    setting_lines,
    settings_of_step,
)
from numdrift.harness.tape.tape import Tape

from ..tape.trainings import Training, recorded

TOY = {"toy.rounding": "nearest", "toy.scale": "on"}
"""What a device of a vendor would be set to."""

library = torch.library.Library("toysettings", "DEF")
library.define("halve(Tensor x) -> Tensor")


def halve(x: Tensor) -> Tensor:
    """x / 2; rounded to 16 bits where the device is set to do so, and a little more than that where it scales."""
    made = x * 0.5
    if TOY["toy.rounding"] == "coarse":
        made = made.bfloat16().float()
    return made if TOY["toy.scale"] == "on" else made * (1 + 2**-12)


library.impl("halve", halve, "CPU")


def product(x: Tensor, y: Tensor) -> Tensor:
    """x @ y; on the device with 10 binary digits where TF32 is on."""
    if ON_DEVICE and current_settings()["precision.cuda.matmul"] == "tf32":
        x, y = (one.half().float() for one in (x, y))
    return x @ y


library.define("product(Tensor x, Tensor y) -> Tensor")
library.impl("product", product, "CPU")

ON_DEVICE: list[str] = []
"""The device that computes now; empty for the CPU."""


class Here(Worker):
    """A process that is this one, on another device."""

    def __init__(self, requests: Requests, device: str = "") -> None:
        self.apart = False
        self.name = "here"
        self._requests = requests
        self._device = device

    def _ask(self, fields: Mapping[str, Any], segments: Sequence[Tensor] = ()) -> Message:
        ON_DEVICE.extend([self._device] if self._device else [])
        try:
            return self._requests.answer(Message({**fields}, segments))
        finally:
            ON_DEVICE.clear()


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = current_settings()
    withdraw = device_settings.declare(
        {name: ((lambda name=name: TOY[name]), (lambda value, name=name: TOY.__setitem__(name, value))) for name in TOY}  # type: ignore[misc]
    )
    toy = dict(TOY)
    yield
    put_settings(before)
    TOY.update(toy)
    withdraw()
    setting_lines.lines.clear()


def held(
    folder: Path,
    label: str,
    make: Callable[[], Training],
    settings: Mapping[str, Any],
    spec: str = "cpu",
    device: str = "",
) -> StepSide:
    """A side: one step of a training, recorded with torch set so, and a process that executes its calls."""
    torch.manual_seed(0)
    training = make()
    with settings_of_step(settings):
        setting_lines.lines.clear()
        for name in settings if "," not in spec else ():
            setting_lines.note(name, "/somewhere/train.py:12")
        with recorded() as recorder:
            ON_DEVICE.extend([device] if device else [])
            training.step(recorder.watch)
            ON_DEVICE.clear()
    tapes = folder / label / "tapes"
    tapes.mkdir(parents=True)
    write_tape(tape_file(tapes, 0), recorder.tape())
    config = RunConfig(__file__, parse_mode(spec), str(folder / label / "journal"))
    worker = Here(Requests(config, {}), device)
    tape = read_tape(tape_file(tapes, 0))
    if device:
        tape = replace(tape, slots=tuple(replace(slot, device=device) for slot in tape.slots))
    return StepSide(tape, label, lambda: worker.digests(0), WorkerCalls(worker, 0), spec=f"{label}={spec}")


def found_in(a: StepSide, b: StepSide, threshold: float = 16.0) -> LocalizedStep:
    with settings_of_step(a.tape.settings):
        return localize_step({"a": a, "b": b}, Noise(0, 0, {}), threshold, lambda text: None)


class Halving(Training):
    """Three calls of the device's own op."""

    def __init__(self) -> None:
        super().__init__(net := nn.Linear(4, 4), torch.optim.SGD(net.parameters(), lr=0.1))
        self.x = torch.randn(5, 4)

    def work(self) -> None:
        self.optimizer.zero_grad()
        with torch.no_grad():
            x = self.x
            for _ in range(3):
                x = torch.ops.toysettings.halve(x) + 1
        self.backward(self.model(x).square().sum())
        self.optimizer.step()


class Convolving(Training):
    """Two convolutions and a product."""

    def __init__(self) -> None:
        net = nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.Tanh(), nn.Conv2d(16, 16, 3), nn.Tanh(), nn.Flatten(), nn.Linear(1024, 5)
        )
        super().__init__(net, torch.optim.SGD(net.parameters(), lr=0.1))
        self.x, self.y = torch.randn(8, 3, 12, 12), torch.randint(0, 5, (8,))

    def work(self) -> None:
        self.optimizer.zero_grad()
        self.backward(F.cross_entropy(self.model(self.x), self.y))
        self.optimizer.step()


class Attending(Training):
    """One layer of attention."""

    def __init__(self) -> None:
        super().__init__(net := nn.Linear(8, 24), torch.optim.SGD(net.parameters(), lr=0.1))
        self.x = torch.randn(2, 6, 8)

    def work(self) -> None:
        self.optimizer.zero_grad()
        q, k, v = (part.view(2, 6, 2, 4).transpose(1, 2) for part in self.model(self.x).chunk(3, -1))
        self.backward(F.scaled_dot_product_attention(q, k, v, is_causal=True).square().sum())
        self.optimizer.step()


class Multiplying(Training):
    """Two products of the device's own."""

    def __init__(self) -> None:
        super().__init__(net := nn.Linear(16, 4), torch.optim.SGD(net.parameters(), lr=0.1))
        self.x, self.y = torch.randn(8, 16), torch.randn(16, 16)

    def work(self) -> None:
        self.optimizer.zero_grad()
        with torch.no_grad():
            x = torch.ops.toysettings.product(self.x, self.y).tanh()
            x = torch.ops.toysettings.product(x, self.y)
        self.backward(self.model(x).square().mean())
        self.optimizer.step()


def is_proven(culprit: Culprit) -> bool:
    assert culprit.proof is not None
    return culprit.status == "culprit" and culprit.proof.swap_in.holds and culprit.proof.swap_out.holds


@pytest.mark.slow
def test_all_calls_that_a_devices_own_setting_makes_others_are_one_cause(tmp_path: Path) -> None:
    a = held(tmp_path, "first", Halving, {})
    # given a setting that changes nothing besides
    b = held(tmp_path, "second", Halving, {"toy.rounding": "coarse", "deterministic": "on"})
    found = found_in(a, b)
    [culprit] = found.culprits
    assert (culprit.kind, culprit.sites, is_proven(culprit)) == ("setting", 3, True)
    assert culprit.setting is not None and culprit.setting.name == "toy.rounding"
    assert culprit.reasons == (
        "all 3 calls of halve differ because toy.rounding is coarse (train.py:12), nearest in first",
    )
    assert culprit.source == "/somewhere/train.py:12" and culprit.ops["b"] == ("halve",)
    # no key of a mode stands for it
    assert culprit.swapped is None and remedy(parse_mode("cpu"), parse_mode("cpu"), [culprit]).left
    assert found.left.explained == 1.0


@pytest.mark.slow
def test_without_the_settings_the_same_calls_are_a_kernel(tmp_path: Path) -> None:
    a, b = held(tmp_path, "first", Halving, {}), held(tmp_path, "second", Halving, {"toy.rounding": "coarse"})
    plain = {name: value for name, value in b.tape.settings.items() if name != "toy.rounding"}
    tape = Tape(0, b.tape.slots, b.tape.inputs, b.tape.calls, b.tape.watched, plain)
    found = found_in(a, StepSide(tape, "second", b.digests, b.calls, spec=b.spec))
    assert {one.kind for one in found.culprits} == {"kernel"}


@pytest.mark.slow
def test_settings_that_act_together_are_tried_together(tmp_path: Path) -> None:
    a = held(tmp_path, "first", Halving, {})
    b = held(tmp_path, "second", Halving, {"toy.rounding": "coarse", "toy.scale": "off"})
    [culprit] = found_in(a, b).culprits
    assert culprit.setting is not None and is_proven(culprit)
    assert culprit.setting.name == "toy.rounding and toy.scale"
    assert culprit.setting.values == {"a": "nearest and on", "b": "coarse and off"}


@pytest.mark.slow
@pytest.mark.parametrize("side", ["a", "b"])
def test_the_mode_that_states_a_setting_is_told_and_the_remedy_is_its_key(side: str, tmp_path: Path) -> None:
    settings = [{"mkldnn": False}, {}] if side == "a" else [{}, {"mkldnn": False}]
    specs = ["cpu,mkldnn=off", "cpu"] if side == "a" else ["cpu", "cpu,mkldnn=off"]
    a, b = (
        held(tmp_path, label, Convolving, *given)
        for label, given in zip(("first", "second"), zip(settings, specs, strict=True), strict=True)
    )
    [culprit] = found_in(a, b).culprits
    assert is_proven(culprit) and culprit.phases == ["forward", "backward"]
    said = "all 4 calls of convolution and convolution_backward differ because mkldnn is"
    ends = {"a": f"{said} on, off (set by the mode) in first", "b": f"{said} off (set by the mode), on in first"}
    assert culprit.reasons == (ends[side],)
    fix = remedy(parse_mode(specs[0]), parse_mode(specs[1]), [culprit])
    other = {"a": "off", "b": "on"}[side]
    assert fix.swaps == (f"mkldnn={other}",) and str(fix.spec) == f"cpu,mkldnn={other}"
    assert culprit.setting is not None and culprit.setting.statements["a"] == [
        f"torch.backends.mkldnn.enabled = {other == 'on'}"
    ]
    assert Culprit.from_json(culprit.to_json()).setting == culprit.setting


@pytest.mark.slow
def test_the_kernel_of_attention_is_chosen_by_a_setting(tmp_path: Path) -> None:
    a = held(tmp_path, "first", Attending, {})
    b = held(tmp_path, "second", Attending, {"attention.flash": False})
    [culprit] = found_in(a, b).culprits
    name = "_scaled_dot_product_flash_attention_for_cpu"
    assert (
        culprit.kind == "setting" and is_proven(culprit) and name in culprit.ops["a"] and name not in culprit.ops["b"]
    )
    assert culprit.reasons[0].startswith(
        f"{name} is executed on only one side because attention.flash is off (train.py"
    )
    assert culprit.swapped == "sdpa=any"


@pytest.mark.slow
@pytest.mark.parametrize("stated", [True, False])
def test_a_setting_that_acts_on_the_other_device_alone_is_what_rounds_too_much(stated: bool, tmp_path: Path) -> None:
    # given a script that allows TF32, which the CPU has not
    allowed = {"matmul_precision": "high", "precision.cuda.matmul": "tf32"}
    a = held(tmp_path, "first", Multiplying, allowed)
    # "cpu:0" stands for a device of which torch knows nothing else
    spec = "cuda,matmul_precision=high,tf32=on" if stated else "cuda"
    b = held(tmp_path, "second", Multiplying, allowed, spec, device="cpu:0")
    found = found_in(a, b)
    [culprit] = [one for one in found.culprits if one.kind == "setting"]
    assert culprit.setting is not None and culprit.swapped == "tf32=off" and is_proven(culprit)
    where = "(set by the mode)" if stated else "(train.py:12)"
    said = f"both calls of product differ by more than rounding because tf32 is on {where}: with tf32=off they are "
    assert culprit.reasons == (f"{said}within rounding of first",)
    # without TF32 there is nothing to be blamed for
    plain = held(tmp_path, "third", Multiplying, {}, "cuda", device="cpu:0")
    assert not found_in(a, plain).culprits


def tapes(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Tape]:
    return {
        "a": Tape(0, (), {}, (), (), {**current_settings(), **a}),
        "b": Tape(0, (), {}, (), (), {**current_settings(), **b}),
    }


@pytest.mark.parametrize(
    ("a", "b", "specs", "expected"),
    [
        ({}, {}, ("cpu", "cpu"), []),
        # what is not set is exact
        ({"precision.cuda.matmul": "none"}, {"precision.cuda.matmul": "ieee"}, ("cuda", "cuda"), []),
        # TF32 is told by its key, though it is the precision of products, too
        (
            {},
            {"precision.cuda.matmul": "tf32", "matmul_precision": "high"},
            ("cuda", "cuda"),
            [("tf32", "convolutions", "on"), ("matmul_precision", "highest", "high")],
        ),
        (
            {},
            {"precision.cuda.matmul": "tf32", "matmul_precision": "high"},
            ("cuda", "fast=cuda,matmul_precision=high"),
            [("matmul_precision", "highest", "high"), ("tf32", "convolutions", "on")],
        ),
        # on the CPU it does nothing
        (
            {},
            {"precision.cuda.matmul": "tf32", "matmul_precision": "high", "cudnn_benchmark": True},
            ("cpu", "cpu"),
            [("matmul_precision", "highest", "high")],
        ),
        ({"flush_denormal": True}, {}, ("cpu", "cpu"), [("flush_denormal", "on", "off")]),
        (
            {},
            {"attention.math": False, "attention.cudnn": False},
            ("cuda", "cuda"),
            [("attention.math and attention.cudnn", "on", "off")],
        ),
    ],
)
def test_settings_are_share_between_the_keys_of_a_mode(
    a: Mapping[str, Any], b: Mapping[str, Any], specs: tuple[str, str], expected: list[tuple[str, str, str]]
) -> None:
    put_settings({"matmul_precision": "highest"})
    found = setting_differences(tapes(a, b), dict(zip("ab", specs, strict=True)))  # type: ignore[arg-type]
    assert [(one.name, one.shown["a"], one.shown["b"]) for one in found] == expected


def test_what_hides_a_setting_is_taken_out_with_it() -> None:
    settings = {"mkldnn": False, "matmul_precision": "medium", "precision.mkldnn.matmul": "bf16"}
    found = setting_differences(tapes({}, settings), {"a": "cpu", "b": "cpu"})  # type: ignore[arg-type]
    assert {one.swapped for one in found} == {"matmul_precision=highest,mkldnn=on"}
    spec = parse_mode("cpu")
    culprit = Culprit("setting", swapped=found[0].swapped, setting=CulpritSetting("mkldnn", "both calls differ", {}))
    assert str(remedy(spec, spec, [culprit]).spec) == "cpu,matmul_precision=highest,mkldnn=on"


def test_the_number_of_threads_is_a_number_in_the_remedy() -> None:
    spec = parse_mode("cpu,threads=1")
    assert remedy(spec, spec, [Culprit("setting", swapped="threads=2")]).spec.threads == 2


def test_a_script_in_plain_torch_sets_what_it_can() -> None:
    before = current_settings()
    lines = statements(
        {
            "matmul_precision": "high",
            "precision.cuda.matmul": "tf32",
            "deterministic": "warn",
            "reduction.bf16": "off",
        }
    )
    assert lines == [
        "torch.set_float32_matmul_precision('high')",
        "torch.use_deterministic_algorithms(True, warn_only=True)",
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False",
    ]
    for line in [*lines, *(statements({"precision.cuda.matmul": "tf32", "cudnn_tf32": False}) or ())]:
        exec(line, {"torch": torch})  # noqa: S102, a script is such lines
    assert current_settings()["precision.cuda.matmul"] == "tf32" != before["precision.cuda.matmul"]
    assert statements({"reduction.fp16": "on unsplit"}) == [
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = (True, False)"
    ]
    assert statements({"toy.rounding": "coarse"}) is None


@pytest.mark.parametrize("settings", [["mkldnn"], {"mkldnn": [1]}, "off"])
def test_settings_of_a_request_that_are_none_are_refused(settings: Any, tmp_path: Path) -> None:
    held(tmp_path, "first", Halving, {})
    requests = Requests(RunConfig(__file__, parse_mode("cpu"), str(tmp_path / "first" / "journal")), {})
    fields = {"request": "execute", "step": 0, "position": 0, "memory": [[0, 0]]}
    values = torch.zeros(80, dtype=torch.uint8)  # of 5 x 4 numbers
    assert requests.answer(Message({**fields, "settings": {"mkldnn": False}}, [values])).fields["outputs"]
    with pytest.raises(ValueError, match="the settings are invalid"):
        requests.answer(Message({**fields, "settings": settings}, [values]))
