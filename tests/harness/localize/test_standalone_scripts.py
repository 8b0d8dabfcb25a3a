"""Standalone scripts: they show in plain torch, without numdrift, what was found, and nothing on a tape gets out of its quotes."""

from __future__ import annotations

import ast
import json
import re
import runpy
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from numdrift.harness.backends.compiled.node_kernels import NodeKernels
from numdrift.harness.drift.step_noise import Noise
from numdrift.harness.investigate.words.culprit_words import lines_of
from numdrift.harness.localize.align.storage_flow import SIDES, Side
from numdrift.harness.localize.causes.localized_step import LocalizedStep, UnprovenCauses
from numdrift.harness.localize.execute.step_side import StepSide
from numdrift.harness.localize.localize_step import localize_step
from numdrift.harness.localize.scripts import script_ways
from numdrift.harness.localize.scripts import standalone_scripts as scripts
from numdrift.harness.localize.scripts.script_calls import literal
from numdrift.harness.localize.scripts.script_interpreter import ScriptInterpreter, Scripts
from numdrift.harness.localize.scripts.script_text import MOST_LINES
from numdrift.harness.localize.scripts.standalone_scripts import ScriptWriter, execute_script
from numdrift.harness.records.results.culprit import Culprit, CulpritScript
from numdrift.harness.tape.recording.call_log import digest_of
from numdrift.harness.tape.replaying.replay import AsRecorded, Computation, Replay, executed, executions, results
from numdrift.harness.tape.tape import CompiledNode, Tape

from ...conftest import ROOT, Numdrift
from ..tape.trainings import recorded

Watch = Callable[[str, Tensor], None]
Work = Callable[[Watch], None]
Kernel = Callable[..., Tensor]

X = torch.linspace(-3, 3, 16 * 8).sin().reshape(16, 8)
W = torch.linspace(-1, 2, 4 * 8).cos().reshape(4, 8)


@dataclass(frozen=True, slots=True)
class Named:
    label: str
    spec: str


MODES: Mapping[Side, Named] = {"a": Named("cpu", "cpu"), "b": Named("bad", "bad=cpu,env.FAULT=1")}


class ByHand(torch.autograd.Function):
    """tanh with its backward in plain products."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        # Neither contracted nor not is ATen's kernel this product: which of the two it is depends on the processor.
        made: Tensor = grad[0] * ((1 - y) * (1 + y))
        return made


def trained(function: Callable[[Tensor, Tensor], Tensor]) -> Work:
    def work(watch: Watch) -> None:
        w = W.clone().requires_grad_()
        loss = function(X.clone(), w)
        watch("loss 0", loss)
        loss.backward()
        assert w.grad is not None
        watch("gradient 0 w", w.grad)

    return work


def restored(restores: bool) -> Work:
    def work(watch: Watch) -> None:
        w = W.clone()
        old = w.clone()
        w.add_(X[:4], alpha=0.5)
        if restores:
            w.copy_(old)
        watch("parameter w", w)

    return work


def drawn(seed: int) -> Work:
    def work(watch: Watch) -> None:
        generator = torch.Generator().manual_seed(seed)
        watch("loss 0", (X + torch.randn(16, 8, generator=generator)).sum())

    return work


def stepped(lr: float) -> Work:
    def work(watch: Watch) -> None:
        parameters, gradients = [W.clone(), X.clone()], [W * 2, X * 3]
        torch._foreach_add_(parameters, gradients, alpha=-lr)
        for number, one in enumerate(parameters):
            watch(f"parameter {number}", one)

    return work


def normed(momentum: float) -> Work:
    def work(watch: Watch) -> None:
        mean, var = torch.zeros(8), torch.ones(8)
        loss = F.batch_norm(X, mean, var, training=True, momentum=momentum).square().sum()
        for name, one in (("buffer mean", mean), ("buffer var", var), ("loss 0", loss)):
            watch(name, one)

    return work


def viewed(scale: float) -> Work:
    """Transposed, expanded and sliced inputs, and numbers drawn between `from` and `to`."""

    def work(watch: Watch) -> None:
        watch("loss 0", W.t().mul(scale).sum())
        watch("loss 1", X.expand(3, 16, 8).mul(scale).sum())
        watch("loss 2", X[2:5, ::3].mul(scale).sum())
        watch("loss 3", torch.zeros(5).random_(1, int(9 * scale)))
        watch("loss 4", torch.gt(X, 0.1 * scale).to(torch.int32))

    return work


CASES: Mapping[str, tuple[Work, Work, str]] = {
    "decomposition": (
        trained(lambda x, w: torch.tanh(x @ w.t()).square().mean()),
        trained(lambda x, w: ByHand.apply(x @ w.t()).square().mean()),  # type: ignore[no-untyped-call]
        "structure",
    ),
    "scalar": (
        trained(lambda x, w: F.leaky_relu(x @ w.t(), 0.1).sum()),
        trained(lambda x, w: F.leaky_relu(x @ w.t(), 0.2).sum()),
        "arguments",
    ),
    "layout": (
        trained(lambda x, w: ((x @ w.t()).exp().repeat(64, 16)).sum()),
        trained(lambda x, w: ((x @ w.t()).exp().repeat(64, 16)).t().contiguous().t().sum()),
        "layout",
    ),
    "added": (
        trained(lambda x, w: F.mse_loss(x @ w.t(), torch.ones(16, 4))),
        trained(lambda x, w: F.mse_loss(x @ w.t(), torch.ones(16, 4)) + 0.1 * w.square().sum()),
        "structure",
    ),
    "dropout": (
        trained(lambda x, w: F.dropout(x @ w.t(), 0.5).sum()),
        trained(lambda x, w: F.dropout(x @ w.t(), 0.25).sum()),
        "arguments",
    ),
    "cast": (
        trained(lambda x, w: (x.mul(2) @ w.t()).sum()),
        trained(lambda x, w: (x.mul(2).bfloat16().float() @ w.t()).sum()),
        "structure",
    ),
    "left out": (restored(True), restored(False), "structure"),
    "generator": (drawn(1), drawn(2), "setup"),
    "lists": (stepped(0.1), stepped(0.2), "arguments"),
    "running statistics": (normed(0.1), normed(0.2), "arguments"),
    "views": (viewed(1.0), viewed(2.0), "arguments"),
    "complex": (
        lambda watch: watch("loss 0", torch.complex(X, X) * (1 + 2j)),
        lambda watch: watch("loss 0", torch.complex(X, X) * (1 + 3j)),
        "arguments",
    ),
}


def tape_of(work: Work) -> Tape:
    torch.manual_seed(0)
    with recorded() as recorder:
        work(recorder.watch)
    return recorder.tape()


def found_in(a: StepSide, b: StepSide) -> LocalizedStep:
    found = localize_step({"a": a, "b": b}, Noise(0, 0, {}), 16.0, lambda text: None)
    assert found.culprits
    return found


def case(name: str) -> LocalizedStep:
    a, b, _ = CASES[name]
    return found_in(StepSide(tape_of(a), "cpu"), StepSide(tape_of(b), "bad"))


def in_process(path: Path, *_: object) -> CulpritScript:
    """Execute a script here, which takes no time."""
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng(), pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
        return CulpritScript(path.name, reproduces=ended.value.code == 0, output="")
    finally:
        torch.set_num_threads(threads)


def script_of(culprit: Culprit) -> CulpritScript:
    assert culprit.script is not None
    return culprit.script


NOBODY: Any = None
"""Stands for an interpreter where `at_once` executes scripts."""


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Scripts]:
    with ScriptInterpreter() as started, Scripts(started.address) as asking:
        yield asking


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "execute_script", in_process)


@dataclass(slots=True)
class Elsewhere(AsRecorded):
    """A process with another kernel of one op: executes calls, and keeps the digests of what it gives."""

    op: str
    kernel: Kernel
    digests: list[list[str | None]] = field(default_factory=list)
    count: int = 0

    def execute(self, one: Any, *given: Any) -> list[Any]:
        execution: Computation = one if isinstance(one, Computation) else one.node.execution
        arguments, keywords = given or (one.arguments, one.keywords)
        self.count += 1
        swapped = execution.call.op == self.op
        outputs = [self.kernel(*arguments)] if swapped else executed(execution, arguments, keywords)
        if execution is one:
            made = results(execution, outputs, arguments, keywords)
            self.digests[execution.position] = [digest_of(each) for each in made]
        return outputs

    def prepare(self, nodes: Any) -> None:
        """Nothing is to be made ready."""

    def value(self, node: Any) -> None:
        return None


def swapped(tape: Tape, op: str, kernel: Kernel) -> StepSide:
    """A side that executes the tape with another kernel of one op."""
    elsewhere = Elsewhere(op, kernel, [[] for _ in tape.calls])
    Replay(tape).run(elsewhere)
    return StepSide(tape, "bad", lambda: elsewhere.digests, elsewhere)  # type: ignore[arg-type]


def coarse(grad: Tensor, output: Tensor) -> Tensor:
    """tanh_backward in 8 digits."""
    made: Tensor = torch.ops.aten.tanh_backward(grad.bfloat16(), output.bfloat16()).float()
    return made


def with_coarse_kernel() -> LocalizedStep:
    tape = tape_of(CASES["decomposition"][0])
    other = swapped(tape, "aten.tanh_backward.default", coarse)
    spec = "lazy,kernel.tanh_backward=coarse.py"
    return found_in(StepSide(tape, "cpu", spec="cpu"), replace(other, spec=spec))


def printed(output: str) -> list[str]:
    return re.findall(r"largest error (\S+) ULP", output)


def body(folder: Path, name: str = "culprit-1.py") -> str:
    text = (folder / name).read_text()
    assert len(text.splitlines()) <= MOST_LINES
    assert "numdrift" not in text.split('"""')[2]
    return text


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("name", CASES)
def test_a_script_shows_what_its_culprit_says(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = case(name)
    written = ScriptWriter(MODES, tmp_path, NOBODY).write(found)
    assert written
    assert {one.kind for one in found.culprits} == {CASES[name][2]}
    said = printed(capsys.readouterr().out)
    for culprit in found.culprits:
        script = script_of(culprit)
        assert script.path is not None and script.error_ulp is not None, script.why
        assert script.reproduces, (culprit, body(tmp_path, script.path))
        body(tmp_path, script.path)
        if culprit.sites == 1:
            assert script.error_ulp == culprit.error_ulp
        for side in script.error_ulp.values():
            assert f"{side:.6g}" in said


@pytest.mark.usefixtures("at_once")
def test_what_only_rounds_beside_a_fault_has_no_script(tmp_path: Path) -> None:
    def computed(slope: float, sigmoid: Kernel, softmax: Kernel) -> StepSide:
        def work(watch: Watch) -> None:
            watch("loss 0", F.leaky_relu(X, slope))
            watch("loss 1", sigmoid(X))
            watch("loss 2", softmax(X.sin()))

        return StepSide(tape_of(work), f"slope {slope}")

    by_hand = computed(0.2, lambda x: 1 / (1 + (-x).exp()), lambda x: x.exp() / x.exp().sum(-1, keepdim=True))
    found = found_in(computed(0.1, torch.sigmoid, lambda x: x.softmax(-1)), by_hand)

    (name,) = ScriptWriter(MODES, tmp_path, NOBODY).write(found)

    fault, *others = found.culprits
    assert fault.op == "aten.leaky_relu" and script_of(fault).path == name
    assert len(others) > 1 and all(culprit.is_proven for culprit in others)
    assert {script_of(culprit).why for culprit in others} == {"it only rounds differently, and there is a fault"}
    along = f"swapped into cpu together with {len(others) - 1} other cause"
    assert all(along in " ".join(lines_of(culprit, "cpu", "bad")) for culprit in others)
    assert "together" not in " ".join(lines_of(fault, "cpu", "bad"))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_script_needs_nothing_but_torch(name: str, tmp_path: Path, interpreter: Scripts) -> None:
    found = case(name)
    here, away = tmp_path / "here", tmp_path / "away"
    here.mkdir()
    written = ScriptWriter(MODES, here, interpreter).write(found)
    shutil.copytree(here, away)
    assert execute_script(away / written[0], interpreter).reproduces


@pytest.mark.usefixtures("at_once")
def test_a_kernel_of_the_other_process_is_shown_by_what_it_gave(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = with_coarse_kernel()
    ScriptWriter(MODES, tmp_path, NOBODY).write(found)
    [culprit] = found.culprits
    text = body(tmp_path)
    assert (culprit.kind, culprit.kernel) == ("kernel", {"a": "aten", "b": "coarse.py"})
    assert script_of(culprit).reproduces
    assert "so the file holds its recorded" in text
    assert "torch.ops.aten.tanh_backward.default(grad_output, output)" in text
    assert printed(capsys.readouterr().out) == [f"{culprit.error_ulp[side]:.6g}" for side in "ab"]
    assert culprit.error_ulp["b"] > 1e4


@pytest.mark.slow
def test_a_generated_kernel_is_compiled_again(tmp_path: Path, interpreter: Scripts) -> None:
    tape = tape_of(lambda watch: watch("loss 0", torch.tanh(torch.linspace(-4, 4, 4096) * 0.99)))
    node = CompiledNode("0 forward", "tanh", "aten.tanh.default", 0)
    nodes = [replace(call, compiled=node if call.op == "aten.tanh.default" else None) for call in tape.calls]
    there = replace(tape, calls=tuple(nodes))
    kernels = NodeKernels(there)
    [one] = [one for one in executions(there) if one.call.compiled is not None]
    kernels.prepare([one.position])
    generated = swapped(there, "aten.tanh.default", lambda x: kernels.execute(one, (x,), {})[0])
    found = found_in(StepSide(tape, "cpu"), generated)
    modes: Mapping[Side, Named] = {**MODES, "b": Named("fast", "fast=compile,contract=fast")}
    ScriptWriter(modes, tmp_path, interpreter).write(found)
    [culprit] = found.culprits
    text = body(tmp_path)
    assert script_of(culprit).reproduces
    assert "torch.compile(side_b, fullgraph=True, dynamic=False)" in text
    assert 'enable_floating_point_contract_flag = "fast"' in text


@pytest.mark.usefixtures("at_once")
def test_other_numbers_are_not_reproduced(tmp_path: Path) -> None:
    found = case("scalar")
    ScriptWriter(MODES, tmp_path, NOBODY).write(found)
    path = tmp_path / "culprit-1.py"
    text = path.read_text()
    path.write_text(text.replace(", 0.2)", ", 0.1)"))
    assert text != path.read_text()
    assert not in_process(path).reproduces


NASTY = [
    'x.py:1"""\nimport os\nos.abort()\n"""',
    "x.py\\",
    "'''\r\u2028import os #",
    'x"\\"""" + __import__("os").abort() + """',
    "{__import__('os').abort()}",
]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("nasty", NASTY)
def test_no_name_gets_out_of_its_quotes(nasty: str, tmp_path: Path) -> None:
    def renamed(tape: Tape) -> Tape:
        calls = tuple(replace(call, module=nasty, frames=(nasty,)) for call in tape.calls)
        return replace(tape, calls=calls)

    a, b, _ = CASES["scalar"]
    found = found_in(StepSide(renamed(tape_of(a)), nasty), StepSide(renamed(tape_of(b)), nasty))
    modes: Mapping[Side, Named] = {side: Named(f"{nasty}{side}", nasty) for side in SIDES}
    ScriptWriter(modes, tmp_path, NOBODY).write(found)
    assert script_of(found.culprits[0]).reproduces, script_of(found.culprits[0])
    assert shape(body(tmp_path)) == shape(plain_body(tmp_path / "plain"))


def plain_body(folder: Path) -> str:
    folder.mkdir()
    ScriptWriter(MODES, folder, NOBODY).write(case("scalar"))
    return body(folder)


def shape(text: str) -> list[str]:
    """The tree of a module without its text constants."""
    found = []
    for node in ast.walk(ast.parse(text)):
        known = "" if isinstance(node, ast.Constant) and isinstance(node.value, str) else names_in(node)
        found.append(f"{type(node).__name__} {known}")
    return found


def names_in(node: ast.AST) -> str:
    return " ".join(str(value) for _, value in ast.iter_fields(node) if isinstance(value, (str, int, float)))


@pytest.mark.parametrize("value", [*NASTY, float("nan"), -float("inf"), complex(1, float("inf")), -0.0, None])
def test_a_plain_argument_is_the_same_as_code(value: object) -> None:
    text = literal(value)
    read = eval(text, {"__builtins__": {"float": float, "complex": complex}})
    assert repr(read) == repr(value)
    assert "\n" not in text


@pytest.mark.usefixtures("at_once")
def test_what_takes_too_much_has_no_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_ways, "MOST_INPUTS", 100)
    (tmp_path / "culprit-1.py").write_text("old")
    found = case("scalar")
    assert ScriptWriter(MODES, tmp_path, NOBODY).write(found) == []
    script = script_of(found.culprits[0])
    assert script.path is None
    assert script.why is not None and "MiB" in script.why
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("at_once")
def test_what_has_too_many_calls_has_no_script(tmp_path: Path) -> None:
    def long(x: Tensor, w: Tensor) -> Tensor:
        loss = (x @ w.t()).sum()
        for number in range(30):
            loss = loss + 0.1 * (w * number).sum()
        return loss

    a = tape_of(trained(lambda x, w: (x @ w.t()).sum()))
    found = found_in(StepSide(a, "cpu"), StepSide(tape_of(trained(long)), "bad"))
    ScriptWriter(MODES, tmp_path, NOBODY).write(found)
    whys = [script_of(one).why or "" for one in found.culprits]
    assert any("do not fit into a script of 60 lines" in why for why in whys)


def test_the_words_name_the_script_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proof = {"score_before": 0.0, "score_after": 20.0, "holds": True}
    told: dict[str, Any] = {
        "kind": "arguments",
        "op": "aten.mul",
        "phase": "forward",
        "status": "culprit",
        "reasons": [],
        "error_ulp": {},
        "rho": {},
        "proof": {"swap_in": proof, "swap_out": proof},
        "script": {"path": str(tmp_path / "e" / "culprit-1.py"), "reproduces": True, "output": ""},
    }
    culprit = Culprit.from_json(told)
    monkeypatch.chdir(tmp_path)
    assert lines_of(culprit, "cpu", "bad")[-1] == "e/culprit-1.py shows it without numdrift"
    culprit = replace(culprit, script=CulpritScript("culprit-1.py", reproduces=False, output=""))
    assert "without numdrift" not in " ".join(lines_of(culprit, "cpu", "bad"))
    culprit = replace(culprit, script=None)
    assert "without numdrift" not in " ".join(lines_of(culprit, "cpu", "bad"))


@pytest.fixture
def evidence(numdrift: Numdrift, tmp_path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    done = numdrift(
        *("investigate", ROOT / "tests" / "faults" / "models" / "tanh_sam.py", "--modes", "cpu"),
        *("--mode", "bad=cpu,kernel.tanh_backward=bf16", "--name", "i"),
    )
    content = json.loads((tmp_path / "runs" / "i" / "investigation.json").read_text())
    yield content["pairs"][0], done.stdout


@pytest.mark.slow
def test_an_investigation_leaves_its_scripts(evidence: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    pair, said = evidence
    [culprit] = pair["culprits"]
    path = tmp_path / culprit["script"]["path"]
    assert path.parent.parent == tmp_path / "runs" / "i" / "evidence"
    assert f"{path.relative_to(tmp_path)} shows it without numdrift" in said
    assert culprit["command"] == "numdrift localize runs/i/cpu runs/i/bad --step 0"
    with ScriptInterpreter() as started, Scripts(started.address) as alone:
        done = execute_script(path, alone)
    assert done.reproduces, done
    assert culprit["script"]["error_ulp"]["b"] == culprit["error_ulp"]["b"] > 1e4


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("small", [True, False])
def test_scripts_are_written_beside_the_proofs_where_the_step_is_small(
    small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(scripts, "MOST_BESIDE", 1)
    found = case("scalar")
    causes = UnprovenCauses(found.pair, found.kernels, found.examined, [replace(one) for one in found.culprits])
    writer = ScriptWriter(MODES, tmp_path, NOBODY)
    writer.begin(causes)
    assert bool(writer._under_way) == small
    names = writer.write(found)
    assert names == ["culprit-1.py"] == [one.script.path for one in found.culprits if one.script is not None]
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "culprit-1.json",
        "culprit-1.py",
        "culprit-1.safetensors",
    ]


@pytest.mark.usefixtures("at_once")
def test_a_script_of_what_is_no_culprit_is_not_left(tmp_path: Path) -> None:
    found = case("scalar")
    writer = ScriptWriter(MODES, tmp_path, NOBODY)
    writer.begin(UnprovenCauses(found.pair, found.kernels, found.examined, list(found.culprits)))
    found.culprits.clear()
    assert writer.write(found) == []
    assert list(tmp_path.iterdir()) == []
