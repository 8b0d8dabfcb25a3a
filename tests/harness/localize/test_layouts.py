"""The same op on equal values that lie otherwise in memory. The kernels here hang on the layout on every processor."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from numdrift.harness.investigate.words.culprit_words import lines_of
from numdrift.harness.localize.causes.examination import Examined, examine
from numdrift.harness.localize.causes.suspects import Suspect, suspects
from numdrift.harness.localize.execute.layout_words import both_in_words, in_words
from numdrift.harness.localize.execute.prepared_call import Kernels, PlainKernels, PreparedCall
from numdrift.harness.localize.execute.tape_pair import TapePair
from numdrift.harness.localize.execute.unrepeatable_calls import UnrepeatableCalls
from numdrift.harness.localize.execute.verification import Found, SideKernels
from numdrift.harness.records.results.culprit import Culprit
from numdrift.harness.tape.replaying.laid_out import LaidOut, relaid
from numdrift.harness.tape.replaying.replay import is_same
from numdrift.harness.torch_private.registered_kernels import Overrides

from .pairs import Plant, Sides, Small, localized, sides, taped

LABELS: Mapping[Any, str] = {"a": "cpu", "b": "lazy"}
CHANNELS_LAST = torch.channels_last
AT, OFF = "beginning at a 64-byte boundary", "beginning 4 bytes off a 64-byte boundary"


def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Adds up from the other end what does not lie contiguous, and rounds to bfloat16 what begins off a boundary."""
    apart = (x - x.amax(dim, keepdim=True)).contiguous()
    powers = apart.exp().unbind(dim)
    total = functools.reduce(torch.add, powers if x.is_contiguous() else powers[::-1]).unsqueeze(dim)
    return apart - (total.bfloat16().float() if x.storage_offset() else total).log()


def product(x: Tensor, y: Tensor) -> Tensor:
    """x * y, wrong where y does not lie contiguous, whatever x does."""
    return x.contiguous() * (y if y.is_contiguous() else y.contiguous().bfloat16().float())


@pytest.fixture(autouse=True)
def kernels_of_the_scripts_own() -> Iterator[None]:
    overrides = Overrides()
    overrides.replace(torch.ops.aten._log_softmax.default, "CPU", log_softmax)
    overrides.replace(torch.ops.aten.hypot.default, "CPU", product)
    yield
    overrides.close()


def start() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(6, 40, generator=generator) for _ in range(2)]


Made = Callable[[Tensor, Tensor], Tensor]


def pair_of(a: Made, b: Made) -> TapePair:
    def side(function: Made) -> Callable[[Callable[[str, Tensor], None]], None]:
        x, y = start()

        def work(saw: Callable[[str, Tensor], None]) -> None:
            saw("both", x.square() + y.square())
            saw("loss 0", function(x, y))

        return work

    return Sides(taped(side(a)), taped(side(b))).pair()


def transposed(x: Tensor) -> Tensor:
    return x.t().contiguous().t()


def shifted(x: Tensor) -> Tensor:
    """The same values, beginning 4 bytes off a boundary."""
    return torch.cat([x.new_zeros(1), x.reshape(-1)])[1:].view(x.shape)


def examined(pair: TapePair, op: str) -> Examined | None:
    """The test of the only block of an op; None where it is not a suspect."""
    [found] = [
        number
        for number, block in enumerate(pair.blocks)
        if block.is_pair and pair.flows["a"].nodes[block.a[0]].call.name == op
    ]
    return examine(pair, suspects(pair)).get(found)


# What is found of a block.


@pytest.mark.parametrize(
    ("a", "b", "op", "said"),
    [
        (lambda x, y: F.log_softmax(x, -1), lambda x, y: F.log_softmax(transposed(x), -1), "_log_softmax",
         "argument 1 (self): contiguous (40, 1) in cpu, transposed (1, 6) made by clone in lazy"),
        (lambda x, y: F.log_softmax(transposed(x), -1), lambda x, y: F.log_softmax(x, -1), "_log_softmax",
         "argument 1 (self): transposed (1, 6) made by clone in cpu, contiguous (40, 1) in lazy"),
        (lambda x, y: x.hypot(y), lambda x, y: transposed(x).hypot(transposed(y)), "hypot",
         "argument 2 (other): contiguous (40, 1) in cpu, transposed (1, 6) made by clone in lazy"),
        (lambda x, y: F.log_softmax(x, -1), lambda x, y: F.log_softmax(shifted(x), -1), "_log_softmax",
         f"argument 1 (self): contiguous (40, 1), {AT} in cpu, contiguous (40, 1), {OFF}, made by cat in lazy"),
    ],
    ids=["copied transposed", "copied by the reference", "of two arguments one matters", "off a boundary"],
)  # fmt: skip
def test_the_layout_alone_makes_the_bits(a: Made, b: Made, op: str, said: str) -> None:
    found = examined(pair_of(a, b), op)
    assert found is not None and found.differs and found.suspect.kind == "layout"
    told = [both_in_words(one, LABELS) for one in found.relaid]
    # the copies are made in this very file
    assert [re.sub(r" at test_layouts\.py:\d+", "", one) for one in told] == [said]


def test_a_layout_that_changes_no_bit_is_no_cause() -> None:
    pair = pair_of(lambda x, y: x.exp(), lambda x, y: transposed(x).exp())
    found = examined(pair, "exp")
    assert found is not None and found.differs is False and not found.relaid


def test_another_part_of_a_tensor_is_no_layout() -> None:
    pair = pair_of(lambda x, y: F.log_softmax(x[:3], -1), lambda x, y: F.log_softmax(x[3:], -1))
    found = examined(pair, "_log_softmax")
    assert found is not None and found.suspect.kind == "arguments" and not found.relaid


class Coarse(PlainKernels):
    """Kernels that give results in bfloat16 for what does not lie contiguous, or for all."""

    def __init__(self, *, always: bool) -> None:
        self._always = always

    def execute(self, call: PreparedCall) -> list[Any]:
        outputs = super().execute(call)
        if call.node.call.name != "exp" or (call.arguments[0].is_contiguous() and not self._always):
            return outputs
        return [one.bfloat16().float() for one in outputs]


@pytest.mark.parametrize(
    ("a", "b", "reasons", "named"),
    [
        (
            PlainKernels(),
            Coarse(always=False),
            "the kernels compute different bits only in the layout of the other mode",
            1,
        ),
        (PlainKernels(), Coarse(always=True), "a different layout", 0),
    ],
    ids=["there only", "everywhere"],
)
def test_a_kernel_that_is_another_one_is_no_layout(a: Kernels, b: Kernels, reasons: str, named: int) -> None:
    pair = replace(pair_of(lambda x, y: x.exp(), lambda x, y: transposed(x).exp()), kernels={"a": a, "b": b})
    found = examined(pair, "exp")
    assert found is not None and found.suspect.kind == "kernel"
    assert found.suspect.reasons[0] == reasons and len(found.relaid) == named


def test_a_kernel_of_the_reference_that_is_wrong_in_its_own_layout() -> None:
    pair = pair_of(lambda x, y: transposed(x).exp(), lambda x, y: x.exp())
    pair = replace(pair, kernels={"a": Coarse(always=False), "b": PlainKernels()})
    found = examined(pair, "exp")
    assert (
        found is not None
        and found.suspect.reasons[0] == "the kernels compute different bits only in the layout of the reference"
    )


class GeneratedCode(SideKernels):
    """Copies what log_softmax takes into another layout, and calls the op."""

    def __init__(self, lies: LaidOut) -> None:
        super().__init__(Found(), calls=None, recorded={}, once=UnrepeatableCalls())  # type: ignore[arg-type]
        self._lies = lies

    def execute(self, call: PreparedCall) -> list[Any]:
        x, *others = call.arguments
        return PlainKernels().execute(replace(call, arguments=(relaid(x, self._lies), *others)))

    def called(self, call: PreparedCall) -> list[LaidOut] | None:
        return [self._lies]


@pytest.mark.parametrize(
    ("stride", "start", "said"),
    [
        ((1, 6), 0, "argument 1 (self): contiguous (40, 1) in cpu, transposed (1, 6) within its generated code in lazy"),
        ((40, 1), 4,
         f"argument 1 (self): contiguous (40, 1), {AT} in cpu, contiguous (40, 1), {OFF} within its generated code in lazy"),
    ],
)  # fmt: skip
def test_generated_code_that_lays_out_anew(stride: tuple[int, int], start: int, said: str) -> None:
    pair = pair_of(lambda x, y: F.log_softmax(x, -1), lambda x, y: F.log_softmax(x, -1))
    pair = replace(pair, kernels={"a": PlainKernels(), "b": GeneratedCode(LaidOut((6, 40), stride, start))})
    [number] = [at for at, node in enumerate(pair.flows["a"].nodes) if node.call.name == "_log_softmax"]
    home = pair.home["a"][number]
    found = examine(pair, {home: Suspect(home, "kernel", ())})[home]
    assert found.suspect.kind == "layout"
    assert [both_in_words(one, LABELS) for one in found.relaid] == [said]


# Whole steps.


class WithScriptsKernels(Small):
    """A class of its own: its reference is recorded once, and with the kernels above."""


def before_the_loss(function: Callable[[Tensor], Tensor]) -> Plant:
    def plant(t: Small) -> None:
        t.loss = lambda logits: F.cross_entropy(function(logits), t.y)

    return plant


def culprits_of(plant: Plant) -> list[Culprit]:
    return localized(sides(WithScriptsKernels, plant)).culprits


def test_a_layout_that_matters_is_proven_and_is_rounding() -> None:
    # given a loss over logits that lie transposed, and a kernel that adds up from the other end then
    [culprit] = culprits_of(before_the_loss(transposed))
    # then it is the layout, swapped in and out, and within the rounding of its inputs
    assert (culprit.kind, culprit.op, culprit.phase) == ("layout", "aten._log_softmax", "forward")
    assert culprit.is_proven and culprit.local_significance == "rounding" and culprit.kernel is None
    assert culprit.proof is not None and culprit.proof.swap_out.score_without_all == 0.0
    [argument] = culprit.layouts
    assert (argument.number, argument.name) == (1, "self")
    assert argument.look == {"a": "contiguous", "b": "transposed"}
    assert {side: tuple(one) for side, one in argument.stride.items()} == {"a": (4, 1), "b": (1, 16)}
    # and the words name both modes, with whose errors
    said = lines_of(culprit, "cpu", "lazy")
    assert "argument 1 (self): contiguous (4, 1) in first, transposed (1, 16) made by clone" in said[1]
    assert "ULP from double in cpu" in said[2]


def test_a_kernel_that_is_wrong_in_one_layout_is_beyond_rounding() -> None:
    [culprit] = [one for one in culprits_of(before_the_loss(shifted)) if one.phase == "forward"]
    assert (culprit.kind, culprit.op) == ("layout", "aten._log_softmax")
    assert culprit.is_proven and (culprit.local_significance, culprit.local_rule) == ("beyond-rounding", "error")
    assert culprit.layouts[0].start == {"a": 0, "b": 4}


def test_a_culprit_of_a_layout_is_written_and_read_again() -> None:
    [culprit] = culprits_of(before_the_loss(transposed))
    assert Culprit.from_json(culprit.to_json()).to_json() == culprit.to_json()
    plain = replace(culprit, layouts=())
    assert "layouts" not in plain.to_json()


# Layouts themselves.


@pytest.mark.parametrize(
    ("tensor", "said"),
    [
        (torch.zeros(2, 3), "contiguous (3, 1)"),
        (torch.zeros(3, 2).t(), "transposed (1, 2)"),
        (torch.zeros(4, 3, 2).transpose(1, 2), "transposed (6, 1, 2)"),
        (torch.zeros(2, 3, 4).permute(2, 0, 1), "permuted (1, 12, 4)"),
        (torch.zeros(2, 3, 4, 5).contiguous(memory_format=CHANNELS_LAST), "channels last (60, 1, 15, 3)"),
        (torch.zeros(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d), "channels last (360, 1, 90, 18, 3)"),
        (torch.zeros(8, 1, 3, 3), "contiguous (9, 9, 3, 1)"),
        (torch.zeros(8, 1, 3, 3).to(memory_format=CHANNELS_LAST), "channels last (9, 1, 3, 1)"),
        (torch.zeros(3).expand(2, 3), "expanded (0, 1)"),
        (torch.zeros(4, 6)[:, ::2], "with gaps (6, 2)"),
        (torch.zeros(5)[1:], "contiguous (1,), beginning 4 bytes off a 64-byte boundary"),
        (torch.zeros(17)[16:], "contiguous (1,)"),
        (torch.zeros(()), "contiguous ()"),
        (torch.zeros(0, 3)[:, 1:], "contiguous (3, 1)"),
    ],
)  # fmt: skip
def test_layouts_in_words_and_laid_out_again(tensor: Tensor, said: str) -> None:
    lies = LaidOut.of(tensor)
    assert in_words(lies) == said
    assert LaidOut.from_json(lies.to_json()) == lies
    values = torch.arange(float(tensor.numel())).reshape(tensor.shape)
    values = values if 0 not in tensor.stride() else values[:1].expand_as(tensor)
    again = relaid(values, lies)
    assert LaidOut.of(again) == lies and is_same(again, values)
    assert again.data_ptr() % 64 == lies.start or not again.numel()


def test_elements_that_share_memory_cannot_be_laid_out() -> None:
    with pytest.raises(ValueError, match="share memory"):
        relaid(torch.arange(4.0).reshape(2, 2), LaidOut((2, 2), (1, 1), 0))
    with pytest.raises(ValueError, match="cannot be laid out"):
        relaid(torch.zeros(3), LaidOut((2,), (1,), 0))


# Products that are taken transposed.


def test_a_product_of_the_transposed_is_paired_with_its_transpose() -> None:
    # given a square weight that lies column by column, for which autograd takes the transposed product
    def by_columns(t: Small) -> None:
        weight = t.net.head.weight
        weight.data = weight.data.t().contiguous().t()

    found = localized(sides(WithScriptsKernels, by_columns))
    # then whatever differs is rounding: no product is told to read other tensors
    assert all(one.kind in ("kernel", "layout") for one in found.culprits)
    assert all(one.significance == "rounding" for one in found.culprits)
    assert found.proofs.rest is not None and found.proofs.rest.is_none
