"""Steps of the mode `compile` on tape: taken apart, with the training as it would be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from numdrift.harness.backends.compiled.mode import CompileMode
from numdrift.harness.backends.compiled.node_kernels import RecordedKernels, compile_node
from numdrift.harness.observers.experiments.tape_recording import TapeRecording
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.records.run.run_request import NOISE_REPLAYS
from numdrift.harness.records.run.step_selection import StepSelection
from numdrift.harness.tape.files.tape_file import read_tape
from numdrift.harness.tape.recording import probed_graph
from numdrift.harness.tape.recording.call_log import digest_of
from numdrift.harness.tape.replaying.replay import AsRecorded, Computation, Replay, call_arguments, executions, is_same
from numdrift.harness.tape.serving.step_kernels import ReplayedKernels, StepKernels
from numdrift.harness.tape.tape import Tape, View
from numdrift.harness.torch_private.compiler.compiling import compile_in_place

from .trainings import TRAININGS, Language, Plain, Training

AOT = "compile,backend=aot_eager_decomp_partition"
INDUCTOR = "compile,fallback_random=on"


class Dropping(Language):
    """A transformer with dropout."""

    def __init__(self) -> None:
        super().__init__()
        for block in self.model.blocks:  # type: ignore[union-attr]
            block.feed.append(nn.Dropout(0.2))


class Halves(nn.Module):
    """A forward that dynamo captures in two pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 12), nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x).tanh()
        torch._dynamo.graph_break()
        out: torch.Tensor = self.second(hidden)
        return out


class Broken(Plain):
    """Two compiled regions, and another batch size in every step."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Halves()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.steps = 0

    def work(self) -> None:
        self.steps += 1
        rows = slice(0, 8 + self.steps)
        self.optimizer.zero_grad()
        self.backward(F.cross_entropy(self.model(self.x[rows]), self.y[rows]))
        self.optimizer.step()


class Gated(nn.Module):
    """A block that dynamo captures in two pieces; what lies between them is executed op by op."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.norm(x)
        torch._dynamo.graph_break()
        gated: torch.Tensor = x * self.inner(x).sigmoid()
        return gated


class Repeated(Plain):
    """One code for two blocks, whose graphs are compiled once and executed for each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(Gated(), Gated(), nn.Linear(6, 4))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)


class Choosing(nn.Module):
    """Calls a higher-order op."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))
        out: torch.Tensor = self.first(scale)
        return out


class Branching(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.model = Choosing()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)


class Pooling(Plain):
    """A dropout behind a convolution and its pool, whose values a compiler may lay out as it likes; and noise in the
    layout of a convolution."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
            self.last = nn.Linear(64 * 4 * 4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:  # [B, 1, 12, 12] -> [B, 4]
            noised = self.first(x)
            noised = (noised + 0.1 * torch.rand_like(noised)).relu()
            pooled = F.dropout(F.max_pool2d(self.second(noised).relu(), 2), 0.25)
            out: torch.Tensor = self.last(pooled.flatten(1))
            return out

    def __init__(self) -> None:
        super().__init__()
        self.model = self.Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.x = torch.randn(len(self.y), 1, 12, 12)


NOISE_AND_TAPE = ["noise-000001.json", "tape-000001.safetensors"]

KINDS: dict[str, Callable[[], Training]] = {
    **TRAININGS,
    "dropping": Dropping,
    "broken": Broken,
    "repeated": Repeated,
    "branching": Branching,
    "pooling": Pooling,
}


@dataclass(frozen=True, slots=True)
class Run:
    """What a taped training has left; `expected` is what the same training gives without a tape."""

    found: Sequence[dict[str, torch.Tensor]]
    expected: Sequence[dict[str, torch.Tensor]]
    notices: Sequence[str]
    files: Sequence[str]
    folder: Path
    recorded: Mapping[int, StepKernels]

    @property
    def tape(self) -> Tape:
        return read_tape(self.folder / "tapes" / "tape-000001.safetensors")

    @property
    def kernels(self) -> RecordedKernels:
        found = self.recorded[1]
        assert isinstance(found, RecordedKernels)
        return found

    @property
    def noise(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((self.folder / "tapes" / "noise-000001.json").read_text())
        return found

    def differing(self) -> list[str]:
        return [
            f"{step} {name}"
            for step, (one, other) in enumerate(zip(self.found, self.expected, strict=True))
            for name in other
            if not is_same(one[name], other[name])
        ]


def started(kind: str, backend: str) -> Training:
    torch._dynamo.reset()
    torch.manual_seed(0)
    training = KINDS[kind]()
    compile_in_place(training.model, backend)
    return training


@contextmanager
def numerics(*, fallback_random: bool) -> Iterator[None]:
    with torch._inductor.config.patch(fallback_random=fallback_random):
        yield


def taped(kind: str, mode: str, folder: Path, steps: int = 3, *, quick: bool = False) -> Run:
    """Train with step 1 on tape."""
    spec = parse_mode(mode)
    backend = spec.backend or "inductor"
    notices: list[str] = []
    kernels: dict[int, StepKernels] = {}
    taped_steps = StepSelection.parse("1")
    with numerics(fallback_random=spec.fallback_random == "on"):
        twin = started(kind, backend)
        expected = [twin.values() for _ in range(steps)]
        config = RunConfig(__file__, spec, str(folder / "journal"), tapes=taped_steps, quick_tapes=quick)
        mode_of_run, write = CompileMode(config.mode), lambda event, **fields: None
        recording = TapeRecording(config, taped_steps, mode_of_run, notices.append, write, kernels)
        recording.install()
        try:
            training = started(kind, backend)
            found = [_step(training, number, recording) for number in range(steps)]
        finally:
            recording.close()
    files = sorted(path.name for path in (folder / "tapes").glob("*"))
    return Run(found, expected, notices, files, folder, kernels)


def _step(training: Training, number: int, recording: TapeRecording) -> dict[str, torch.Tensor]:
    seen: dict[str, torch.Tensor] = {}

    def saw(name: str, tensor: torch.Tensor) -> None:
        seen[name] = tensor.detach().clone()
        if number == 1:
            recording.saw(name, tensor)

    if number == 1:
        recording.begins(number)
    training.step(saw)
    if number == 1:
        recording.step_ended(number)
    return seen


def taped_as_it_is(kind: str) -> Tape:
    """Step 1 of the same training, in eager mode."""
    torch.manual_seed(0)
    training = KINDS[kind]()
    training.step()
    return training.taped(1)


def replayed(tape: Tape) -> dict[str, torch.Tensor]:
    return Replay(tape).run(AsRecorded())


class Real(AsRecorded):
    """A replay in which every node of a compiled graph gives what it really gave; shows each before it is executed."""

    def __init__(self, kernels: RecordedKernels, shown: Callable[[Computation, tuple[object, ...]], None]) -> None:
        self.kernels = kernels
        self.shown = shown

    def execute(self, one: Computation, arguments: tuple[object, ...], keywords: object) -> list[object]:
        self.shown(one, arguments)
        outputs = super().execute(one, arguments, keywords)  # type: ignore[arg-type]
        known = iter(self.kernels.value(one.position) or ())
        return [next(known, old).clone() if new else old for old, new in zip(outputs, one.call.fresh, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sam", "mlp", "images", "broken", "dropping"])
def test_a_graph_that_is_executed_op_by_op_replays_bit_for_bit(kind: str, tmp_path: Path) -> None:
    run = taped(kind, AOT, tmp_path)
    assert not run.differing() and not run.notices
    assert run.files == NOISE_AND_TAPE
    values, tape = replayed(run.tape), run.tape
    assert [name for name, value in tape.expected().items() if not is_same(values[name], value)] == []
    assert all(is_same(tape.expected()[name], value) for name, value in run.found[1].items())
    assert run.kernels.digests() == ReplayedKernels(lambda: tape).digests()


def test_nodes_say_where_they_come_from(tmp_path: Path) -> None:
    tape = taped("sam", AOT, tmp_path).tape
    calls = [call for call in tape.calls if call.compiled is not None]
    derivative = [call for call in calls if call.compiled.origin == "aten.tanh_backward.default"]  # type: ignore[union-attr]
    assert [call.name for call in derivative] == ["mul", "sub", "mul"] * 2
    assert len({call.compiled.group for call in derivative}) == 2  # type: ignore[union-attr]
    assert {(call.phase, call.module, call.compiled.graph) for call in derivative} == {  # type: ignore[union-attr]
        ("backward", "1", "0 backward")
    }
    forward = [call.sequence for call in calls if call.name == "tanh"]
    assert [call.sequence for call in derivative[::3]] == forward
    assert len(set(forward)) == 2 and all(number is not None and number < 0 for number in forward)
    assert {call.phase for call in tape.calls} == {"forward", "backward", "optimizer"}
    outside = [call.name for call in tape.calls if call.compiled is None and call.phase == "forward"]
    assert "nll_loss_forward" in outside


def test_two_regions_and_their_lines(tmp_path: Path) -> None:
    tape = taped("broken", AOT, tmp_path).tape
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    found = {
        (
            call.name,
            call.compiled.graph.partition(" ")[0],
            lines[int(call.line.rpartition(":")[2]) - 1].strip(),
        )
        for call in tape.calls
        if call.compiled is not None and call.phase == "forward" and call.line is not None
    }
    assert {(name, line) for name, _, line in found} >= {
        ("tanh", "hidden = self.first(x).tanh()"),
        ("addmm", "hidden = self.first(x).tanh()"),
        ("addmm", "out: torch.Tensor = self.second(hidden)"),
    }
    assert len({region for _, region, _ in found}) == 2


def test_a_graph_that_runs_for_two_modules_names_the_one_that_it_runs_for(tmp_path: Path) -> None:
    # given the same step without a compiler, where hooks follow the modules
    compiled, plain = taped("repeated", AOT, tmp_path).tape, taped_as_it_is("repeated")
    graphs = {call.compiled.graph for call in compiled.calls if call.compiled is not None and call.phase == "forward"}
    assert len(graphs) < 2 * 2  # blocks share their graphs

    def places(tape: Tape, phase: str, *names: str) -> set[tuple[str, str | None]]:
        ops = [call.name if call.compiled is None else call.compiled.origin.split(".")[1] for call in tape.calls]
        pairs = zip(ops, tape.calls, strict=True)
        return {(op, call.module) for op, call in pairs if call.phase == phase and op in names}

    forward = ("native_layer_norm", "addmm", "sigmoid", "add", "mul")
    # the adds are sums of gradients
    backward = ("native_layer_norm_backward", "sigmoid_backward", "mm", "add")
    of_blocks = {(op, f"{block}{of}") for block in "01" for op, of in (("add", ""), ("addmm", ".inner"))}
    assert of_blocks <= places(plain, "forward", *forward) == places(compiled, "forward", *forward)
    assert places(plain, "backward", *backward) == places(compiled, "backward", *backward)


def test_what_cannot_be_taken_apart_is_a_reason(tmp_path: Path) -> None:
    run = taped("branching", "compile,backend=aot_eager", tmp_path)
    assert not run.differing()
    assert run.files == ["noise-000001.json"] and not run.recorded
    assert run.notices == ["step 1 does not replay: " + run.notices[0].partition(": ")[2]]
    assert "cond, which a tape cannot record op by op" in run.notices[0]


@pytest.mark.slow
def test_a_tape_that_takes_long_is_put_off_and_changes_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probed_graph, "MOST_AT_ONCE", 3)
    run = taped("sam", INDUCTOR, tmp_path, quick=True)
    assert not run.differing() and not run.notices
    # then neither a tape nor a reason is there, so that another run tapes the step
    assert not run.files and not run.recorded


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["sam", *(pytest.param(kind, marks=pytest.mark.exhaustive) for kind in ("images", "dropping"))]
)
def test_a_step_of_inductor_is_known_down_to_its_nodes(kind: str, tmp_path: Path) -> None:
    run = taped(kind, INDUCTOR, tmp_path)
    tape = run.tape
    assert not run.differing() and not run.notices and run.files == NOISE_AND_TAPE
    # random rounding moves the replay of its ops about as far as that replay lies from what was generated
    noise = run.noise
    assert noise["equal"] and noise["replays"] == NOISE_REPLAYS
    gradients = [one for name, one in noise["tensors"].items() if name.startswith("gradient")]
    largest = max(one["norm"] for one in gradients)  # that of a bias before a batch norm is nothing but rounding
    assert all(0 < one["rms"] < 1e-4 * largest for one in gradients)
    # the eager ops of the tape compute the same step
    values = replayed(tape)
    for name, value in tape.expected().items():
        if name.startswith(("loss", "gradient")):
            torch.testing.assert_close(values[name], value, rtol=1e-3, atol=1e-5)
    # what the nodes really gave leads to what the training really had
    digests = run.kernels.digests()
    found: dict[int, tuple[object, ...]] = {}
    real = Replay(tape).run(Real(run.kernels, lambda one, arguments: found.update({one.position: arguments})))
    unknown = [one for digest in digests for one in digest if one is None]
    assert len(unknown) <= 3 and len(run.kernels.notes) == bool(unknown)
    assert unknown or all(is_same(real[name], value) for name, value in tape.expected().items())
    kept = [run.kernels.value(position) for position in range(len(tape.calls))]
    for digest, known in zip(digests, kept, strict=True):
        assert known is None or [digest_of(one) for one in known] == digest
    drawn = [call for call in tape.calls if call.draw is not None and call.compiled is not None]
    assert bool(drawn) == (kind == "dropping")


@pytest.mark.slow
def test_a_node_compiled_alone_gives_what_it_gave_in_its_graph(tmp_path: Path) -> None:
    run = taped("sam", INDUCTOR, tmp_path)
    tape, kernels = run.tape, run.kernels
    digests, others = kernels.digests(), dict[str, int]()
    asked: list[tuple[Computation, tuple[object, ...]]] = []

    def shown(one: Computation, arguments: tuple[object, ...]) -> None:
        if one.call.compiled is not None:
            copied = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in arguments)
            asked.append((one, tuple(_like(old, new) for old, new in zip(arguments, copied, strict=True))))

    Replay(tape).run(Real(kernels, shown))
    kernels.prepare([one.position for one, _ in asked])
    state = torch.get_rng_state()
    for one, arguments in asked:
        with torch.no_grad():
            eager = one.operation(*arguments)
        outputs = kernels.execute(one, arguments, {})
        assert [digest_of(output) for output in outputs] == digests[one.position], one.call.op
        others[one.call.name] = others.get(one.call.name, 0) + (digest_of(eager) != digests[one.position][0])
    assert others["tanh"] and not others["mul"] and not others["mm"]
    assert torch.equal(state, torch.get_rng_state())


def _like(old: object, new: object) -> object:
    """The copy in the layout of the original."""
    if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
        return new
    return torch.empty_strided(old.size(), old.stride(), dtype=old.dtype).copy_(new)


@pytest.mark.exhaustive
def test_a_kernel_is_the_same_alone_and_among_others(tmp_path: Path) -> None:
    run = taped("images", INDUCTOR, tmp_path)
    together, alone = run.kernels, RecordedKernels(run.tape, run.kernels._values, compile_node)
    chosen = [
        one
        for one in executions(run.tape)
        if one.call.compiled is not None and one.call.name in ("var_mean", "rsqrt", "relu", "where", "sum")
    ]
    together.prepare([one.position for one in chosen])
    generator = torch.Generator().manual_seed(0)

    def tensor(view: View) -> torch.Tensor:
        made = torch.empty_strided(view.size, view.stride, dtype=view.dtype)
        return made.copy_(torch.randn(view.size, generator=generator).abs())

    for one in chosen:
        arguments, keywords = call_arguments(one.call, tensor)
        some = together.execute(one, arguments, keywords)
        others = alone.execute(one, arguments, keywords)
        assert all(is_same(left, right) for left, right in zip(some, others, strict=True)), one.call.op


@pytest.mark.slow
def test_random_numbers_of_another_generator_are_a_reason(tmp_path: Path) -> None:
    run = taped("mlp", "compile", tmp_path)
    assert not run.differing()
    assert "fallback_random=on" in run.notices[0] and run.files == ["noise-000001.json"]


@pytest.mark.exhaustive
def test_what_was_drawn_in_any_layout_is_drawn_again_on_tape(tmp_path: Path) -> None:
    run = taped("pooling", INDUCTOR, tmp_path)
    assert not run.differing() and not run.notices and run.files == NOISE_AND_TAPE
    tape, digests = run.tape, run.kernels.digests()
    drawn = {at: call for at, call in enumerate(tape.calls) if call.draw is not None and call.compiled is not None}
    assert sorted(call.name for call in drawn.values()) == ["native_dropout", "rand_like"]
    given: dict[int, tuple[object, ...]] = {}
    Replay(tape).run(Real(run.kernels, lambda one, arguments: given.update({one.position: arguments})))
    for position, call in drawn.items():
        # plain torch, from the state of the generator, on what was really taken
        assert call.draw is not None
        torch.set_rng_state(call.draw.states[0].state)
        found: object = getattr(torch.ops.aten, call.name)(*given[position], **call.keywords)
        numbers = found[-1] if isinstance(found, tuple) else found
        assert isinstance(numbers, torch.Tensor) and digest_of(numbers) == digests[position][-1]
