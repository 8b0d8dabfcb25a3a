from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from numdrift.harness.backends.compiled.adapter import observe_inductor
from numdrift.harness.records.tools.backend_work import OperatorCall
from numdrift.harness.torch_private.compiler.compiling import own_compile
from numdrift.harness.torch_private.compiler.inductor_lowering import inductor_without_execution


class Kinds(nn.Module):
    """One operator in two configurations, and one whose lowering is another op's."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        real = torch.tanh(x * self.scale)
        spectrum = torch.fft.fft(real.detach())
        product: Tensor = spectrum * (2 * spectrum)  # the complex product
        return real.sum() + product.abs().sum()


def observed(training: Callable[[], object]) -> list[OperatorCall]:
    calls: list[OperatorCall] = []
    with inductor_without_execution(), observe_inductor(__file__, calls.append):
        training()
    return calls


@pytest.fixture(scope="module")
def calls() -> list[OperatorCall]:
    """What Inductor says of `Kinds`, forward and backward: it lowers them twice, the second time as a cache would answer."""
    model, x = Kinds(), torch.linspace(0.1, 1.0, 4)

    def training() -> None:
        torch.compiler.reset()
        compiled = own_compile()(model, backend="inductor")
        compiled(x).backward()

    first, second = observed(training), observed(training)
    assert first == second
    assert model.scale.grad is not None and model.scale.grad.tolist() == [0.0] * 4  # nothing was executed
    return first


@pytest.mark.slow
def test_an_operator_is_supported_for_one_type_and_not_for_another(calls: list[OperatorCall]) -> None:
    products = {one.configuration.partition("[")[0]: one for one in calls if one.kind == "aten::mul"}
    assert products["float32"].supported
    assert not products["complex64"].supported
    assert products["complex64"].failure_at == "inductor lowering"
    assert "complex64" in products["complex64"].reason
    assert products["complex64"].instructions[0].startswith("complex64[4] FallbackKernel aten.mul")


@pytest.mark.slow
def test_an_unsupported_operator_has_its_line(calls: list[OperatorCall]) -> None:
    lines = Path(__file__).read_text().splitlines()
    (wanted,) = [number for number, line in enumerate(lines, 1) if line.endswith("# the complex product")]
    found = {one.call for one in calls if one.kind == "aten::mul" and not one.supported}
    assert found == {f"{Path(__file__).name}:{wanted}"}


@pytest.mark.slow
def test_what_is_decomposed_is_one_operator_of_several_instructions(calls: list[OperatorCall]) -> None:
    (backward,) = [one for one in calls if one.kind == "aten::tanh_backward"]
    assert backward.supported
    names = [one.split(" ")[2].partition("(")[0] for one in backward.instructions]
    assert names == ["mul", "sub", "mul"]


def chosen(x: Tensor) -> Tensor:
    found: Tensor = x.kthvalue(1).values + torch.histc(x, 3)
    return found


@pytest.mark.slow
def test_the_reason_tells_what_has_no_lowering_from_what_its_lowering_gives_away() -> None:
    def training() -> None:
        torch.compiler.reset()
        own_compile()(chosen, backend="inductor")(torch.rand(3, 3))

    found = {one.kind: one for one in observed(training)}
    assert found["aten::add"].supported
    assert "no lowering for aten.histc" in found["aten::histc"].reason
    assert "lowering of aten.kthvalue.default calls ATen's kernel for this" in found["aten::kthvalue"].reason
