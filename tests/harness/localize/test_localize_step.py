"""One planted fault, one culprit: named rightly, and proven both ways."""

from __future__ import annotations

import math
from typing import cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numdrift.harness.localize.align.storage_flow import Side
from numdrift.harness.localize.causes import hybrid_tests
from numdrift.harness.localize.causes.localized_step import LocalizedStep
from numdrift.harness.localize.execute.hybrid import Hybrid, Values, execute
from numdrift.harness.localize.execute.step_side import StepSide
from numdrift.harness.localize.execute.tape_pair import TapePair
from numdrift.harness.localize.execute.worker_calls import WorkerCalls
from numdrift.harness.localize.localize_step import localize_step
from numdrift.harness.records.results.culprit import Culprit, Proof
from numdrift.harness.tape.serving.step_kernels import ReplayedKernels
from numdrift.harness.tape.tape import Tape

from ..tape.trainings import Training
from .pairs import THRESHOLD, Plant, Small, localized, noise_of, nothing, sides, stepped


def eps(t: Small) -> None:
    t.net.layers[1].norm.eps = 1e-3  # type: ignore[union-attr]


def louder(t: Small) -> None:
    plain = t.loss
    t.loss = lambda logits: plain(logits) + 0.01 * logits.norm()


def scaled(t: Small) -> None:
    plain = t.loss
    t.loss = lambda logits: plain(logits) * 1.01


def halved(t: Small) -> None:
    t.net.between = lambda h: h.sigmoid()


def plain_between(t: Small) -> None:
    t.net.between = lambda h: h


def wired(t: Small) -> None:
    t.net.layers[1].adds_normed = True  # type: ignore[assignment]


def hooked(t: Small) -> None:
    def between(h: Tensor) -> Tensor:
        h.register_hook(lambda gradient: gradient * 1.01)
        return h

    t.net.between = between


def decay(t: Small) -> None:
    t.optimizer.param_groups[0]["weight_decay"] = 0.1


def denominator(t: Small) -> None:
    t.optimizer.param_groups[0]["eps"] = 1e-4


def rate(t: Small) -> None:
    t.optimizer.param_groups[0]["lr"] = 1.5e-2


def other_mask(t: Small) -> None:
    torch.manual_seed(99)


def clipped(t: Small) -> None:
    t.clipped = True


class Sigmoid(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


def rewritten(t: Small) -> None:
    t.net.layers[1].act = Sigmoid()


def softmax_written_out(h: Tensor) -> Tensor:
    e = torch.exp(h - h.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def benign(t: Small) -> None:
    t.net.layers[1].scores = softmax_written_out  # type: ignore[assignment]


def beyond(found: LocalizedStep) -> list[Culprit]:
    """The culprits beyond rounding; checks the controls, and what is left without them."""
    assert all(found.controls.values())
    rest, chosen = found.proofs.rest, [one for one in found.culprits if one.significance != "rounding"]
    assert rest is not None and (rest.is_none if len(chosen) == len(found.culprits) else rest.score < 16)
    return chosen


def is_proven(culprit: Culprit) -> bool:
    proof = proof_of(culprit)
    return bool(culprit.status == "culprit" and proof.swap_in.holds and proof.swap_out.holds)


def proof_of(culprit: Culprit) -> Proof:
    assert culprit.proof is not None
    return culprit.proof


@pytest.mark.parametrize(
    ("plant", "before", "phase", "module", "op", "kind", "reason"),
    [
        (eps, nothing, "forward", "layers.1.norm", "native_layer_norm", "arguments", "1e-05 against 0.001"),
        (louder, nothing, "forward", None, "linalg_vector_norm", "structure", "linalg_vector_norm, mul, add"),
        (scaled, nothing, "forward", None, "mul", "structure", "only the other mode executes mul"),
        (plain_between, halved, "forward", "", "sigmoid", "structure", "only the reference executes sigmoid"),
        (wired, nothing, "forward", "layers.1", "add", "structure", "reads a different tensor"),
        (hooked, nothing, "backward", "layers.0", "mul", "structure", "only the other mode executes mul"),
        (
            rewritten,
            nothing,
            "forward",
            "layers.1.act",
            "gelu",
            "structure",
            "gelu against mul, sigmoid, mul",
        ),
        (other_mask, nothing, "forward", "drop", "bernoulli", "setup", "different random numbers"),
        (decay, nothing, "optimizer", "layers", "mul", "arguments", "0.9999 against 0.999"),
        (denominator, nothing, "optimizer", "layers", "add", "arguments", "1e-08 against 0.0001"),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_one_fault_is_one_proven_culprit(
    plant: Plant, before: Plant, phase: str, module: str | None, op: str, kind: str, reason: str
) -> None:
    found = beyond(localized(sides(Small, plant, before)))
    assert len(found) == 1
    culprit = found[0]
    assert is_proven(culprit)
    assert (culprit.phase, culprit.kind) == (phase, kind)
    assert culprit.op is not None and culprit.op.removeprefix("aten.") == op
    assert any(reason in one for one in culprit.reasons)
    if phase == "optimizer":
        assert culprit.sites == len(list(Small().net.parameters()))
    else:
        assert culprit.module == module and culprit.sites == 1


@pytest.mark.parametrize("plant", [eps, louder, wired, hooked, rewritten, decay], ids=lambda one: one.__name__)
def test_what_a_culprit_scores_is_what_the_fault_scores(plant: Plant) -> None:
    found = localized(sides(Small, plant))
    (culprit,) = beyond(found)
    proof, whole = proof_of(culprit), found.proofs.whole.score
    assert proof.swap_in.score_after == proof.swap_out.score_before == whole > 16
    assert proof.swap_out.score_after == 0.0
    assert culprit.share_of_drift == 1.0


def test_gradient_clipping_on_one_side_is_one_culprit() -> None:
    (culprit,) = beyond(localized(sides(Small, clipped)))
    assert is_proven(culprit) and culprit.phase == "optimizer"


def test_another_learning_rate_is_one_culprit() -> None:
    assert len(beyond(localized(sides(Small, rate)))) == 1


@pytest.mark.parametrize(
    "plants",
    [(eps, hooked), (louder, hooked), (wired, decay), (rewritten, eps, louder)],
    ids=lambda plants: "-".join(one.__name__ for one in plants),
)
def test_faults_at_once_are_found_each(plants: tuple[Plant, ...]) -> None:
    def all_of(t: Small) -> None:
        for plant in plants:
            plant(t)

    found = beyond(localized(sides(Small, all_of)))
    assert len(found) == len(plants)
    assert all(map(is_proven, found))
    alone = [beyond(localized(sides(Small, plant)))[0] for plant in plants]
    places = {(one.phase, one.module, one.op, one.kind) for one in found}
    assert places == {(one.phase, one.module, one.op, one.kind) for one in alone}


def gated(first: float, second: float) -> Plant:
    """Something is added that both numbers must let through."""

    def plant(t: Small) -> None:
        t.net.between = lambda h: torch.add(h, (h.detach() * first).sin(), alpha=second)

    return plant


def test_a_fault_that_acts_only_with_another_is_found_with_it() -> None:
    found = beyond(localized(sides(Small, gated(1.0, 1.0), before=gated(0.0, 0.0))))
    assert len(found) == 2
    assert {one.op for one in found} == {"aten.mul", "aten.add"}
    assert all(proof_of(one).together_with == 1 and is_proven(one) for one in found)


def test_one_half_of_such_a_fault_acts_not() -> None:
    found = localized(sides(Small, gated(1.0, 0.0), before=gated(0.0, 0.0)))
    assert found.proofs.whole.is_none and beyond(found) == []


def test_a_benign_rewrite_is_of_rounding_and_is_told_once() -> None:
    found = localized(sides(Small, benign))
    assert beyond(found) == []
    assert 0 < found.proofs.whole.score < 16
    (culprit,) = found.culprits
    assert (culprit.significance, culprit.kind) == ("rounding", "structure")
    assert (culprit.phase, culprit.module, culprit.op) == ("forward", "layers.1", "aten._softmax")


def test_a_fault_beside_a_benign_rewrite_is_the_only_one_beyond_rounding() -> None:
    def both(t: Small) -> None:
        benign(t)
        hooked(t)

    found = localized(sides(Small, both))
    assert [one.op for one in beyond(found)] == ["aten.mul"]
    assert [one.op for one in found.culprits] == ["aten.mul", "aten._softmax"]


def test_of_an_infinite_drift_what_makes_it_so_comes_first() -> None:
    # Given one value that is infinite on one side, and a decay that is another one and moves others.
    def both(t: Small) -> None:
        decay(t)
        plain = t.loss
        t.loss = lambda logits: plain(logits) + torch.log(logits.detach().sum() * 0)

    found = localized(sides(Small, both))

    shares = [one.share_of_drift for one in found.culprits]
    assert math.isinf(found.proofs.whole.score)
    assert [one.phase for one in found.culprits] == ["forward", "optimizer"]
    assert shares[0] is not None and shares[0] > 0.9
    assert shares[1] is not None and shares[1] < 0.1


def test_what_is_left_without_all_that_is_proven_is_measured() -> None:
    def both(t: Small) -> None:
        benign(t)
        hooked(t)

    whole, alike = localized(sides(Small, both)), localized(sides(Small, nothing))

    assert (whole.left.explained, whole.left.score, whole.left.untested) == (1.0, 0.0, ())
    assert alike.left.explained is None and not alike.left.why


def test_equal_steps_have_no_culprit() -> None:
    found = localized(sides(Small, nothing))
    assert found.culprits == [] and found.proofs.whole.is_none and found.proofs.tests == 1


def test_a_verified_side_is_not_executed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    both, executed = sides(Small, scaled), list[Hybrid]()

    def noting(pair: TapePair, hybrid: Hybrid) -> Values:
        executed.append(hybrid)
        return execute(pair, hybrid)

    monkeypatch.setattr(hybrid_tests, "execute", noting)
    unverified = localized(both)
    assert executed.count(Hybrid("a")) == executed.count(Hybrid("b")) == 1
    executed.clear()
    no_worker = cast(WorkerCalls, object())
    held: dict[Side, StepSide] = {
        "a": StepSide(both.a, "first", ReplayedKernels(lambda: both.a).digests, no_worker),
        "b": StepSide(both.b, "second", ReplayedKernels(lambda: both.b).digests, no_worker),
    }
    verified = localize_step(held, noise_of(both.a), THRESHOLD, lambda text: None)
    assert executed and Hybrid("a") not in executed and Hybrid("b") not in executed
    assert verified.controls == unverified.controls == {"a": True, "b": True}
    assert verified.culprits == unverified.culprits and len(beyond(verified)) == 1
    assert verified.proofs.tests == unverified.proofs.tests


def test_another_batch_is_a_difference_of_the_start() -> None:
    def other_batch(t: Small) -> None:
        t.x = t.x + 0.5

    (culprit,) = beyond(localized(sides(Small, other_batch)))
    assert (culprit.kind, culprit.phase) == ("setup", "data") and is_proven(culprit)


def test_another_loss_function_is_found_in_the_forward() -> None:
    def other_target(t: Small) -> None:
        t.loss = lambda logits: F.cross_entropy(logits, t.y, label_smoothing=0.1)

    found = beyond(localized(sides(Small, other_target)))
    assert found and all(one.phase == "forward" for one in found)


class Loop(Training):
    """One cell, three times."""

    def __init__(self) -> None:
        self.norm = nn.LayerNorm(6)
        self.cell, self.head = nn.Linear(6, 6), nn.Linear(6, 1)
        self.net = nn.ModuleDict({"norm": self.norm, "cell": self.cell, "head": self.head})
        super().__init__(Recurrent(self.net), torch.optim.SGD(self.net.parameters(), lr=0.1))
        self.x = torch.randn(8, 6)

    def work(self) -> None:
        self.optimizer.zero_grad()
        self.backward(self.model(self.x).square().mean())
        self.optimizer.step()


class Recurrent(nn.Module):
    def __init__(self, parts: nn.ModuleDict) -> None:
        super().__init__()
        self.parts = parts

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = x + torch.tanh(self.parts["cell"](self.parts["norm"](x)))
        out: Tensor = self.parts["head"](x)
        return out


def norm_by_hand(t: Loop) -> None:
    norm = t.norm

    def forward(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        inverse = torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-3)
        out: Tensor = centred * inverse * norm.weight + norm.bias
        return out

    norm.forward = forward  # type: ignore[method-assign,assignment]


def test_a_module_that_is_rewritten_and_called_in_a_loop_is_the_culprit() -> None:
    found = beyond(localized(sides(Loop, norm_by_hand)))
    culprit = found[0]
    assert is_proven(culprit)
    assert culprit.places == ["parts.norm"] and "native_layer_norm" in culprit.ops["a"]
    assert "rsqrt" in culprit.ops["b"] and "tanh" not in culprit.ops["b"]


def test_a_target_from_before_the_step_is_named_by_its_first_use() -> None:
    # given labels that are not an argument of the model and that no op of the step has made
    def taped(value: float) -> Tape:
        def labelled(t: Small) -> None:
            target = torch.zeros(16, 4)
            target[2] = value
            t.loss = lambda logits: F.binary_cross_entropy(logits.sigmoid(), target)

        return stepped(Small, labelled).taped(1)

    ours, theirs = taped(1.0), taped(0.9)
    # when
    said: list[str] = []
    held = {"a": StepSide(ours, "cpu"), "b": StepSide(theirs, "bad")}
    found = localize_step(held, noise_of(ours), THRESHOLD, said.append)  # type: ignore[arg-type]
    # then
    (culprit,) = found.culprits
    assert (culprit.kind, culprit.op, culprit.is_proven) == ("setup", None, True)
    why, use = culprit.reasons
    assert why == "the step starts from different data"
    assert use.startswith("argument 2 (target) of aten.binary_cross_entropy (test_localize_step.py:")
    assert "float32 [16, 4], 4 of 64 elements differ, by up to 0.1: [2, 0] is 1 in cpu, 0.9 in bad" in use
    assert "test_localize_step.py:" in str(culprit.source)
    assert (
        said[-1]
        == f"0 of {len(found.pair.blocks)} blocks compute different bits, because of differing inputs of the step"
    )
