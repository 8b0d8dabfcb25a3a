"""The errors that a culprit's card shows: against arithmetic of 200 bits, and which elements are chosen."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import mpmath
import pytest
import torch
from torch import Tensor

from numdrift.harness.localize.align.storage_flow import SIDES, Side
from numdrift.harness.localize.execute.step_side import StepSide
from numdrift.harness.localize.scripts import errors_over_inputs as chosen_errors
from numdrift.harness.localize.scripts import standalone_scripts as scripts
from numdrift.harness.localize.scripts.errors_over_inputs import MOST_POINTS, ComparedResult, errors_over_inputs
from numdrift.harness.localize.scripts.localized_values import ShownBlock, Values, show_blocks
from numdrift.harness.localize.scripts.script_calls import CallWriter
from numdrift.harness.localize.scripts.standalone_scripts import ScriptWriter
from numdrift.harness.records.results.culprit_detail import CALLS, DETAIL, RECORDED, CulpritDetail, ErrorsOverInputs
from numdrift.harness.tape.files.tensor_file import read_tensors

from .test_standalone_scripts import MODES, NOBODY, coarse, found_in, in_process, swapped, tape_of, with_coarse_kernel


def in_ulp(result: float, exact: mpmath.mpf, digits: int, smallest: int) -> float:
    """The signed error in units of the last of so many binary digits; `smallest` is the exponent of the least normal
    number."""
    exponent = max(int(mpmath.floor(mpmath.log(abs(exact), 2))), smallest) if exact else 0
    return float((mpmath.mpf(result) - exact) / mpmath.mpf(2) ** (exponent - digits + 1)) if exact else result


def detail_of(folder: Path) -> CulpritDetail:
    return DETAIL.read(folder / "culprit-1.json")


def errors_of(detail: CulpritDetail) -> ErrorsOverInputs:
    assert detail.errors is not None
    return detail.errors


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(scripts, "execute_script", in_process)
    found = with_coarse_kernel()
    assert ScriptWriter(MODES, tmp_path, NOBODY).write(found) == ["culprit-1.py"]
    script = found.culprits[0].script
    assert script is not None and script.error_ulp == errors_of(detail_of(tmp_path)).largest
    return tmp_path


def test_errors_of_tanh_backward_are_those_of_exact_arithmetic(written: Path) -> None:
    errors = errors_of(detail_of(written))
    values = read_tensors(written / "culprit-1.safetensors")[0]
    grad, output = values["grad_output"], values["output"]
    results = {"a": torch.ops.aten.tanh_backward(grad, output), "b": coarse(grad, output)}
    with mpmath.workprec(200):
        exact = [
            mpmath.mpf(g) * (1 - mpmath.mpf(y) ** 2)
            for g, y in zip(grad.flatten().tolist(), output.flatten().tolist(), strict=True)
        ]
        for side, result in results.items():
            expected = [in_ulp(one, of, 24, -126) for one, of in zip(result.flatten().tolist(), exact, strict=True)]
            assert errors.errors[side] == pytest.approx(expected, rel=1e-3, abs=1e-4)
            assert errors.largest[side] == pytest.approx(max(map(abs, expected)), rel=1e-6)
    assert errors.exact == pytest.approx([float(one) for one in exact], rel=1e-5)
    assert errors.inputs["output"] == pytest.approx(output.flatten().tolist(), rel=1e-5)
    assert errors.inputs["grad_output"] == pytest.approx(grad.flatten().tolist(), rel=1e-5)
    assert (errors.elements, errors.dtypes) == (64, {"a": "float32", "b": "float32"})


def test_both_sides_are_told_as_they_are_executed(written: Path) -> None:
    sides = detail_of(written).sides
    assert [sides[side].how for side in "ab"] == [CALLS, RECORDED]
    for side in "ab":
        assert list(sides[side].formula) == ["tanh_backward(grad_output, output)"]
        assert sides[side].lines[0] == "t1 = torch.ops.aten.tanh_backward.default(grad_output, output)"
    assert (written / "culprit-1.json").stat().st_size < 200_000


@pytest.mark.parametrize(
    ("dtype", "digits", "smallest"), [(torch.float16, 11, -14), (torch.bfloat16, 8, -126), (torch.float32, 24, -126)]
)
def test_a_unit_is_that_of_the_results_own_format(dtype: torch.dtype, digits: int, smallest: int) -> None:
    exponents = torch.linspace(smallest - 6, 12, 300, dtype=torch.float64)
    exact = torch.exp2(exponents) * torch.linspace(-1.9, 1.7, 300, dtype=torch.float64)
    exact[7] = 0.0
    result = (exact * 1.01).to(dtype)
    found = ComparedResult(0, exact, {"a": result, "b": result}).errors("a", slice(None))
    with mpmath.workprec(200):
        for error, one, of in zip(found.tolist(), result.tolist(), exact.tolist(), strict=True):
            assert error == pytest.approx(in_ulp(one, mpmath.mpf(of), digits, smallest), rel=1e-12, abs=1e-300)


def block_of(work: object, kernel: object, op: str) -> ShownBlock:
    tape = tape_of(work)  # type: ignore[arg-type]
    found = found_in(StepSide(tape, "cpu"), swapped(tape, op, kernel))  # type: ignore[arg-type]
    lead = found.culprits[0].lead
    assert lead is not None
    block = show_blocks(found.pair, {lead: found.examined[lead].suspect})[lead]
    assert isinstance(block, ShownBlock)
    return block


def shown(block: ShownBlock) -> ErrorsOverInputs:
    codes = {side: CallWriter(block.slices[side], Values()).code(block.results[side], "given") for side in SIDES}
    errors = errors_over_inputs(block, codes)
    assert errors is not None
    return errors


def worse_where_large(x: Tensor, other: Tensor) -> Tensor:
    """A product that errs more, the larger the second factor is."""
    return x * other * (1 + 1e-5 * other.abs())


def test_the_argument_over_which_errors_vary_is_the_first() -> None:
    small, large = torch.linspace(1, 2, 5000), torch.linspace(-3, 3, 5000).sin()[torch.randperm(5000)]
    errors = shown(block_of(lambda watch: watch("loss 0", (small * large).sum()), worse_where_large, "aten.mul.Tensor"))
    assert list(errors.inputs) == ["other", "x"]
    assert errors.elements == 5000 and errors.shown <= MOST_POINTS


def test_an_argument_belongs_to_the_element_that_was_made_of_it() -> None:
    x = torch.linspace(-2, 2, 64).reshape(8, 8)

    def work(watch: object) -> None:
        watch("loss 0", torch.tanh(x).t().contiguous().cumsum(1))  # type: ignore[operator]

    block = block_of(work, lambda one: torch.tanh(one) * (1 + 1e-6), "aten.tanh.default")
    seen = block.slices["a"].watched[0].view
    turned = replace(seen, stride=seen.stride[::-1])
    slices = {
        side: replace(one, watched=(replace(one.watched[0], view=turned), *one.watched[1:]))
        for side, one in block.slices.items()
    }
    results: Mapping[Side, list[Tensor]] = {side: [one[0].t().contiguous()] for side, one in block.results.items()}
    errors = shown(replace(block, slices=slices, results=results, exact=[block.exact[0].t().contiguous()]))
    assert errors.exact == pytest.approx([math.tanh(value) for value in errors.inputs["x"]], rel=1e-4)


@pytest.fixture
def large() -> ComparedResult:
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(300_000, generator=generator, dtype=torch.float64)
    exact[:3] = torch.tensor([math.nan, math.inf, 1.0])
    result = exact.float()
    result[[2, 5]] = torch.tensor([math.inf, math.nan])
    result[99_999] *= 1 + 1e-3
    other = exact.float()
    other[200_001] *= 1 - 1e-3
    return ComparedResult(0, exact, {"a": result, "b": other})


def test_the_largest_errors_are_found_and_what_is_not_finite_is_counted(
    large: ComparedResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chosen_errors, "PIECE", 1 << 16)
    for side, worst, not_finite in (("a", 99_999, 4), ("b", 200_001, 2)):
        scan = chosen_errors._scanned(large, side)  # type: ignore[arg-type]
        assert scan.at[0] == worst and scan.not_finite == not_finite and len(scan.at) == chosen_errors.LARGEST
        errors = large.errors(side, slice(None)).abs()  # type: ignore[arg-type]
        expected = errors[errors.isfinite()].sort(descending=True).values[: chosen_errors.LARGEST]
        assert torch.equal(errors[scan.at], expected) and scan.largest == expected[0]


def test_candidates_are_spread_over_rows_and_columns() -> None:
    chosen = chosen_errors._spread(1_000_000)
    assert len(chosen) <= chosen_errors.CANDIDATES and torch.equal(chosen, chosen_errors._spread(1_000_000))
    for columns in (32, 96, 1000):
        counts = torch.bincount(chosen % columns, minlength=columns).double()
        assert counts.min() > 0.5 * counts.mean() and counts.max() < 2 * counts.mean()


def test_what_is_rare_is_seen() -> None:
    axis = torch.cat([torch.linspace(0, 1, 50_000), torch.linspace(1, 100, 50)])
    few = chosen_errors._along(axis, 1000)
    assert len(few) <= 1000 and (axis[few] > 1).sum() >= 40 and (axis[few] <= 1).sum() > 400


def test_a_result_in_double_has_no_errors_to_show() -> None:
    block = block_of(
        lambda watch: watch("loss 0", torch.tanh(torch.linspace(-2, 2, 64, dtype=torch.float64)).sum()),
        lambda one: torch.tanh(one) * (1 + 1e-9),
        "aten.tanh.default",
    )
    codes = {side: CallWriter(block.slices[side], Values()).code(block.results[side], "given") for side in SIDES}
    assert errors_over_inputs(block, codes) is None


def test_the_file_is_json_that_anybody_reads(written: Path) -> None:
    content = json.loads((written / "culprit-1.json").read_text())
    assert content["schema"] == 1 and set(content) == {"schema", "sides", "errors"}
