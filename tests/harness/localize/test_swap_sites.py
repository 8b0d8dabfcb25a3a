"""What can be swapped alone: ops are joined to what they need from their own side, and to nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from numdrift.harness.localize.align.storage_flow import flow_of
from numdrift.harness.localize.causes.examination import examine
from numdrift.harness.localize.causes.suspects import suspects
from numdrift.harness.localize.causes.swap_sites import SwapSite, sites_of
from numdrift.harness.localize.execute.hybrid import Hybrid, execute
from numdrift.harness.localize.execute.tape_pair import TapePair, paired
from numdrift.harness.tape.tape import Call, CompiledNode, Phase, Tape

from .pairs import differing, taped

Watch = Callable[[str, Tensor], None]
Label = Callable[[int, Call], Call]

FACTORS = {3, 6}
"""The numbers of the nodes that multiply by a factor which only one side has."""

X, Y = torch.linspace(-1, 1, 8), torch.linspace(0.1, 2, 8)


def labelled(tape: Tape, label: Label) -> Tape:
    return replace(tape, calls=tuple(label(number, call) for number, call in enumerate(tape.calls)))


def sites(one: Tape, other: Tape) -> tuple[TapePair, list[SwapSite]]:
    pair = paired(flow_of(one), flow_of(other))
    return pair, sites_of(pair, examine(pair, suspects(pair)))


def test_zeros_that_all_layers_read_do_not_join_the_layers() -> None:
    """A compiled backward makes zeros once, and every layer scatters its gradients into them."""

    def stacked(watch: Watch) -> None:
        for name, value in ("first", X), ("second", Y):
            watch(name, torch.stack([value.exp(), value.sin()]).tanh())

    def scattered(watch: Watch) -> None:
        zeros = torch.full((2, 8), 0.0)
        for name, value, factor in ("first", X, 1.0), ("second", Y, 1.5):
            rows = zeros.select_scatter(value.exp(), 0, 0), zeros.select_scatter(value.sin() * factor, 0, 1)
            watch(name, (rows[0] + rows[1]).tanh())

    one, other = taped(stacked), taped(scattered)
    pair, found = sites(one, other)

    scattering = [site for site in found if any("select_scatter" in pair.all_names(number) for number in site.blocks)]
    assert len(scattering) == 2
    for site, name in zip(scattering, ("first", "second"), strict=True):
        assert execute(pair, Hybrid("a", site.blocks))[name].equal(other.expected()[name])
        others = {"first", "second"} - {name}
        assert all(execute(pair, Hybrid("a", site.blocks))[each].equal(one.expected()[each]) for each in others)
    assert not differing(
        execute(pair, Hybrid("b", frozenset().union(*(site.blocks for site in found)))), one.expected()
    )


def test_backwards_are_no_pair_if_their_forwards_are_none() -> None:
    """Side b scales what a dropout returns. In the backward, side a has one product, and side b has the factor first."""
    mask = (X > -0.5).float()

    def dropped(watch: Watch) -> None:
        watch("loss", (X * mask).exp())
        watch("gradient", (Y.sin() * mask).cos())

    def scaled(watch: Watch) -> None:
        watch("loss", (X.neg().neg().mul(mask) * 1.02).exp())
        watch("gradient", ((Y.sin() * 1.02).neg().neg().mul(mask)).cos())

    def label_a(number: int, call: Call) -> Call:
        phase: Phase = "forward" if number < 2 else "backward"
        drops = call.name == "mul"
        return replace(call, module="drop" if drops else "model", phase=phase, sequence=1 if drops else None)

    def label_b(number: int, call: Call) -> Call:
        phase: Phase = "forward" if number < 5 else "backward"
        if number in FACTORS:
            return replace(call, module="", phase=phase, sequence=-2)
        if call.name not in ("neg", "mul"):
            return replace(call, module="model", phase=phase)
        origin = f"aten.native_dropout{'_backward' if phase == 'backward' else ''}.default"
        node = CompiledNode(f"0 {phase}", call.name, origin, 1)
        return replace(call, module="drop", phase=phase, sequence=-1, compiled=node)

    pair, _ = sites(labelled(taped(dropped), label_a), labelled(taped(scaled), label_b))

    factors = [number for number, block in enumerate(pair.blocks) if FACTORS.intersection(block.b)]
    assert [(pair.names(number, "a"), pair.names(number, "b")) for number in factors] == [([], ["mul"]), ([], ["mul"])]


def test_a_sum_of_gradients_is_not_joined_to_an_op_of_the_outermost_module() -> None:
    """The sums of gradients of a compiled backward have the outermost module, in which side b has a factor, too."""

    def split(watch: Watch) -> None:
        watch("loss", (X.exp() + 1).sqrt())
        watch("gradient", torch.stack([Y.exp(), Y.sin()]).tanh())

    def summed(watch: Watch) -> None:
        watch("loss", ((X.exp() + 1) * 1.02).sqrt())
        zeros = torch.full((2, 8), 0.0)
        watch("gradient", (zeros.select_scatter(Y.exp(), 0, 0) + zeros.select_scatter(Y.sin(), 0, 1)).tanh())

    def label(number: int, call: Call) -> Call:
        forward = number < (4 if call.name in ("mul", "sqrt") else 3)
        module = "" if call.name in ("add", "mul") else "layer"
        return replace(call, module=module, phase="forward" if forward else "backward")

    pair, found = sites(labelled(taped(split), label), labelled(taped(summed), label))

    joined = [set().union(*(pair.names(number, "b") for number in site.blocks)) for site in found]
    assert sorted(map(sorted, joined)) == [["add", "select_scatter"], ["mul"]]


def test_a_mask_for_the_backward_is_no_rewritten_forward() -> None:
    """A compiled forward computes a ReLU's mask. In the backward of the same module, side b has a factor."""

    def plain(watch: Watch) -> None:
        watch("loss", X.exp())
        watch("masked", torch.ops.aten.threshold_backward(Y, X, 0))
        watch("gradient", Y.exp().tanh())

    def compiled(watch: Watch) -> None:
        watch("loss", X.exp())
        mask = X.le(0)
        watch("masked", torch.where(mask, 0.0, Y))
        watch("gradient", (Y.exp() * 1.02).tanh())

    def label(number: int, call: Call) -> Call:
        module = "" if call.name in ("mul", "le", "where", "threshold_backward") else "layer"
        phase: Phase = "forward" if number == 0 or call.name == "le" else "backward"
        node = CompiledNode(f"0 {phase}", call.name, "aten.threshold_backward.default", 1)
        return replace(call, module=module, phase=phase, compiled=node if call.name in ("le", "where") else None)

    pair, found = sites(labelled(taped(plain), label), labelled(taped(compiled), label))

    joined = [set().union(*(pair.names(number, "b") for number in site.blocks)) for site in found]
    assert sorted(map(sorted, joined)) == [["le", "scalar_tensor", "where"], ["mul"]]


def test_the_same_gradients_added_in_another_order_are_one_site() -> None:
    """Of the four terms, side b adds the first one last, since it comes from outside of its compiled graph."""

    def terms() -> list[Tensor]:
        return [Y.sin(), Y.cos(), Y.exp(), Y.tanh()]

    def first(watch: Watch) -> None:
        residual, value, key, query = terms()
        watch("gradient", (((residual + value) + key) + query).sqrt())

    def last(watch: Watch) -> None:
        residual, value, key, query = terms()
        watch("gradient", ((((value + key) + query) + residual) * 1.02).sqrt())

    def label(number: int, call: Call) -> Call:
        return replace(call, module=f"layer.{number}" if call.name == "add" else "layer", phase="backward")

    pair, found = sites(labelled(taped(first), label), labelled(taped(last), label))

    joined = [sorted(name for number in site.blocks for name in pair.names(number, "b")) for site in found]
    assert sorted(joined) == [["add", "add", "add"], ["mul"]]


def test_sums_of_other_gradients_are_not_joined() -> None:
    """Side b adds one of the terms twice."""

    def once(watch: Watch) -> None:
        value, key, query = Y.sin(), Y.cos(), Y.exp()
        watch("gradient", ((value + key) + query).sqrt())

    def twice(watch: Watch) -> None:
        value, key, query = Y.sin(), Y.cos(), Y.exp()
        watch("gradient", (((value + key) + query) + key).sqrt())

    def label(number: int, call: Call) -> Call:
        return replace(call, module="layer", phase="backward")

    pair, found = sites(labelled(taped(once), label), labelled(taped(twice), label))

    assert [[pair.names(number, "b") for number in sorted(site.blocks)] for site in found] == [[["add"]], [["add"]]]


def test_a_part_of_a_backward_that_the_forward_computes_is_no_cause_of_its_own() -> None:
    """A compiled forward divides the rstd of a layer norm for the backward. Side b has a factor behind the norm."""
    weight = torch.linspace(0.5, 2, 8)

    def fused(watch: Watch) -> None:
        rows = X.view(1, 8).exp()
        normed, mean, rstd = torch.ops.aten.native_layer_norm(rows, [8], weight, None, 1e-5)
        watch("loss", normed.tanh())
        inputs, *_ = torch.ops.aten.native_layer_norm_backward(
            Y.view(1, 8).sin(), rows, [8], mean, rstd, weight, None, [True, False, False]
        )
        watch("gradient", inputs.tanh())

    def decomposed(watch: Watch) -> None:
        rows = X.view(1, 8).exp()
        normed, mean, rstd = torch.ops.aten.native_layer_norm(rows, [8], weight, None, 1e-5)
        part = rstd / 8
        watch("loss", (normed * 1.02).tanh())
        scaled = Y.view(1, 8).sin() * weight
        hat = (rows - mean) * rstd
        inner = scaled * 8 - scaled.sum(1, keepdim=True) - hat * (scaled * hat).sum(1, keepdim=True)
        watch("gradient", (part * inner).tanh())

    def label_a(number: int, call: Call) -> Call:
        return replace(call, module="norm", phase="forward" if number < 3 else "backward", sequence=1)

    def label_b(number: int, call: Call) -> Call:
        phase: Phase = "forward" if number < 5 else "backward"
        origin = "aten.native_layer_norm_backward.default"
        is_part = phase == "backward" and call.name not in ("sin", "tanh")
        node = CompiledNode("0 backward", call.name, origin, 1) if is_part else None
        return replace(call, module="" if number == 3 else "norm", phase=phase, sequence=-1, compiled=node)

    one, other = labelled(taped(fused), label_a), labelled(taped(decomposed), label_b)
    pair, found = sites(one, other)

    dividing = [site for site in found if any("div" in pair.names(number, "b") for number in site.blocks)]
    assert [pair.names(site.lead, "a") for site in dividing] == [["native_layer_norm_backward"]]
    # without the backward's site alone, side b has the reference's gradient of its own values
    without = execute(pair, Hybrid("b", dividing[0].blocks))
    assert torch.allclose(without["gradient"], other.expected()["gradient"], rtol=1e-4)
