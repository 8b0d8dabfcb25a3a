from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from numdrift.harness.errors import KernelError
from numdrift.kernels.lab import sweep_state
from numdrift.kernels.lab.sweep import Sweep
from numdrift.kernels.lab.sweep_bins import Reduction, fastest_reduction, reduce_run
from numdrift.kernels.lab.sweep_candidates import Candidate
from numdrift.kernels.lab.sweep_domain import ENCODINGS, Domain
from numdrift.kernels.lab.sweep_result import BinErrors, KernelErrors, as_json, zoom_on_worst
from numdrift.kernels.lab.sweep_state import SweepProgress
from numdrift.kernels.lab.sweep_subject import subject_of

Kernel = Callable[..., Any]


def candidate(op: str, dtype: str, function: Kernel, name: str = "planted") -> Candidate:
    subject = subject_of(op, ENCODINGS[dtype])
    return Candidate(subject, name, function, subject.overload, source="0")


def swept(
    one: Candidate,
    domain: Domain | None = None,
    *,
    jobs: int = 2,
    order: list[int] | None = None,
    reduction: Reduction | None = None,
) -> KernelErrors:
    encoding = one.subject.encoding
    domain = domain or Domain.whole(encoding)
    progress = SweepProgress.none(domain)
    Sweep(one, domain, reduction or fastest_reduction(encoding)[0], jobs, order or ()).run(progress)
    assert progress.finished(domain)
    return KernelErrors(one, domain, progress)


def bits_of(result: SweepProgress) -> tuple[bytes, bytes]:
    return result.bins.tobytes(), result.worst.tobytes()


def off_by(planted: dict[int, int]) -> Kernel:
    """Negation in bfloat16, wrong by so many numbers at these bit patterns."""

    def negate(inputs: torch.Tensor) -> torch.Tensor:
        bits = inputs.view(torch.int16)
        exact = (-inputs).view(torch.int16)
        for pattern, steps in planted.items():
            exact = torch.where(bits == np.int16(np.uint16(pattern)).item(), exact + steps, exact)
        return exact.view(torch.bfloat16)

    return negate


PLANTED = {0x3F95: 1, 0xC215: -2, 0x0013: 5, 0x5A44: 40, 0x8001: 3}


def test_planted_errors_are_found_where_they_are_and_nowhere_else() -> None:
    found = swept(candidate("neg", "bfloat16", off_by(PLANTED)))
    worst = {int(one["at"]): float(one["ulp"]) for one in found.progress.worst}
    assert worst == {pattern: abs(steps) for pattern, steps in PLANTED.items()}
    assert (found.max_ulp, found.max_at) == (40, 0x5A44)
    assert found.total("not_correct") == found.total("above_half") == len(PLANTED)
    assert (found.total("above_one"), found.total("above_two")) == (4, 3)
    assert found.mean_ulp == sum(map(abs, PLANTED.values())) / found.total("measured")
    # the results are negative where the inputs are positive, so that a step up in bits is one down
    signed = sum(-steps if pattern < 0x8000 else steps for pattern, steps in PLANTED.items())
    assert found.bias_ulp == signed / found.total("measured")
    bins = BinErrors.of(found)
    hit = np.flatnonzero(bins.records["max_ulp"])
    assert sorted(bins.first[hit].tolist()) == sorted(pattern & ~0xF for pattern in PLANTED)
    assert sorted(bins.records["max_at"][hit].tolist()) == sorted(PLANTED)


def test_results_that_are_not_finite_where_they_should_be_are_counted() -> None:
    def negate(inputs: torch.Tensor) -> torch.Tensor:
        bits = inputs.view(torch.int16)
        wrong = torch.where(bits == 0x4321, torch.nan, -inputs)
        wrong = torch.where(bits == 0x7F80, torch.inf, wrong)
        return torch.where(bits == 0x7FC0, 0.0, wrong).to(inputs.dtype)

    found = swept(candidate("neg", "bfloat16", negate))
    assert (found.total("disagree"), found.disagree_at) == (3, 0x4321)
    assert found.max_ulp == 0 and found.max_at is None
    assert found.total("measured") == 65536 - 2 * 128 - 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_kernel_sees_every_input_once(dtype: str) -> None:
    seen, lock = np.zeros(1 << 16, np.int64), threading.Lock()

    def negate(inputs: torch.Tensor) -> torch.Tensor:
        with lock:
            np.add.at(seen, inputs.view(torch.int16).numpy().astype(np.uint16), 1)
        return -inputs

    found = swept(candidate("neg", dtype, negate), jobs=3)
    assert (seen == 1).all()
    assert found.total("count") == 65536
    assert set(found.progress.bins["count"].tolist()) == {16 if dtype == "bfloat16" else 128}


def sloppy(inputs: torch.Tensor) -> torch.Tensor:
    """tanh in the dtype of the inputs, rounding after each operation."""
    grown = torch.exp(inputs + inputs)
    return 1 - 2 / (grown + 1)


def test_order_threads_and_reduction_change_no_bit() -> None:
    one = candidate("tanh", "float16", sloppy)
    expected = bits_of(swept(one, jobs=1).progress)
    shuffled = np.random.default_rng(0).permutation(16).tolist()
    assert bits_of(swept(one, jobs=3, order=shuffled).progress) == expected
    assert bits_of(swept(one, jobs=2, order=[*range(16)][::-1]).progress) == expected
    assert bits_of(swept(one, jobs=1, reduction=reduce_run).progress) == expected


def test_float16_agrees_with_arbitrary_precision_on_all_values() -> None:
    # given tanh of every float16 with 40 digits, the spacing there, and its rounding by Python
    patterns = np.arange(1 << 16)
    values = patterns.astype(np.uint16).view(np.float16)
    finite = ~np.isnan(values)
    got = sloppy(torch.from_numpy(values)).numpy()
    errors = np.zeros(1 << 16)
    with mpmath.workdps(40):
        for pattern in patterns[finite]:
            exact = mpmath.tanh(mpmath.mpf(float(values[pattern])))
            spacing = max(2.0 ** (mpmath.frexp(exact)[1] - 11), 2.0**-24) if exact else 2.0**-24
            errors[pattern] = float((mpmath.mpf(float(got[pattern])) - exact) / spacing)
    # when
    found = swept(candidate("tanh", "float16", sloppy))
    # then
    assert found.total("measured") == int(finite.sum())
    assert found.max_ulp == pytest.approx(np.abs(errors).max(), rel=1e-10)
    assert found.max_at == int(np.abs(errors).argmax())
    assert found.mean_ulp == pytest.approx(np.abs(errors).sum() / finite.sum(), rel=1e-10)
    assert found.bias_ulp == pytest.approx(errors.sum() / finite.sum(), rel=1e-9)
    assert found.total("above_half") == (np.abs(errors) > 0.5).sum()
    assert found.total("above_one") == (np.abs(errors) > 1).sum()
    assert found.total("above_two") == (np.abs(errors) > 2).sum()


def test_a_range_measures_its_inputs_as_the_whole_does() -> None:
    one = candidate("tanh", "float16", sloppy)
    whole, part = swept(one), swept(one, Domain.between(ENCODINGS["float16"], 0.5, 4.0))
    bins = BinErrors.of(part)
    assert part.total("count") == 3 * 1024 + 1
    assert (bins.first >= 0x3800).all() and (bins.first <= 0x4400).all()
    # 4.0 is alone in its bin, the other bins are as in the whole
    numbers = bins.first[:-1] >> 7
    assert part.progress.bins[numbers].tobytes() == whole.progress.bins[numbers].tobytes()
    assert part.progress.bins["count"][0x4400 >> 7] == 1


def float32_range() -> Domain:
    return Domain.between(ENCODINGS["float32"], 0.25, 8.0)


def forgetful(calls: int, error: BaseException) -> Kernel:
    """tanh that raises after so many calls."""
    lock, left = threading.Lock(), [calls]

    def compute(inputs: torch.Tensor) -> torch.Tensor:
        with lock:
            left[0] -= 1
        if left[0] < 0:
            raise error
        return torch.tanh(inputs)

    return compute


def test_an_interrupted_sweep_goes_on_and_ends_with_the_same_bits(tmp_path: Path) -> None:
    # given a sweep that Ctrl-C ends in the middle, and one that its kernel ends later
    domain = float32_range()
    good = candidate("tanh", "float32", torch.tanh)
    reduction = fastest_reduction(domain.encoding)[0]
    progress = SweepProgress.none(domain)

    def interrupt(measured: int) -> None:
        if measured > domain.count // 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Sweep(good, domain, reduction, jobs=2).run(progress, tmp_path, interrupt)
    second, why = sweep_state.load(tmp_path, Sweep(good, domain, reduction).identity(), domain)
    assert second is not None and why == ""
    first_part = second.inputs()
    assert domain.count // 10 < first_part < domain.count
    bad = candidate("tanh", "float32", forgetful(40, RuntimeError("tired")))
    with pytest.raises(KernelError, match="tanh=planted raised RuntimeError: tired"):
        Sweep(bad, domain, reduction, jobs=2).run(second, tmp_path)
    # when
    third, _ = sweep_state.load(tmp_path, Sweep(good, domain, reduction).identity(), domain)
    assert third is not None
    assert first_part < third.inputs() < domain.count
    Sweep(good, domain, reduction, jobs=2).run(third, tmp_path)
    # then nothing was measured twice or left out
    assert bits_of(third) == bits_of(swept(good, domain).progress)
    assert third.inputs() == domain.count
    kept, _ = sweep_state.load(tmp_path, Sweep(good, domain, reduction).identity(), domain)
    assert kept is not None and kept.finished(domain) and bits_of(kept) == bits_of(third)


def test_torch_has_its_threads_back_after_a_sweep() -> None:
    before = torch.get_num_threads()
    swept(candidate("neg", "float16", torch.neg))
    assert torch.get_num_threads() == before


def test_a_zoom_shows_the_errors_around_the_worst_input() -> None:
    found = [
        swept(candidate("neg", "bfloat16", off_by(PLANTED))),
        swept(candidate("neg", "bfloat16", torch.neg, "neg")),
    ]
    zoom = zoom_on_worst(found)
    assert zoom is not None
    assert (zoom.kernel, zoom.center) == ("planted", 0x5A44)
    at = {int(offset): error for offset, error in zip(zoom.offsets, zoom.errors["planted"], strict=True)}
    assert at.pop(0) == -40
    assert set(at.values()) == {0.0} and set(at) == {*range(-48, 49)} - {0}
    assert not zoom.errors["neg"].any()
    assert zoom.inputs[48] == ENCODINGS["bfloat16"].value(0x5A44)


def test_a_zoom_stays_on_its_side_of_zero_and_below_infinity() -> None:
    for pattern, count in ((0x8001, 50), (0x7F7D, 51)):
        zoom = zoom_on_worst([swept(candidate("neg", "bfloat16", off_by({pattern: 1})))])
        assert zoom is not None and zoom.center == pattern
        assert len(zoom.offsets) == count
        assert np.sign(zoom.inputs[zoom.offsets == 0]) == (-1 if pattern > 0x7FFF else 1)


def test_an_exact_kernel_has_nothing_to_zoom_on() -> None:
    assert zoom_on_worst([swept(candidate("neg", "bfloat16", torch.neg))]) is None


def test_the_json_holds_totals_and_bins_that_add_up() -> None:
    found = swept(candidate("tanh", "float16", sloppy))
    content = json.loads(json.dumps(as_json(found), allow_nan=False))
    bins: dict[str, list[Any]] = content["bins"]
    assert sum(bins["count"]) == content["inputs"] == 65536
    assert sum(bins["measured"]) == content["measured"]
    assert max(bins["max_ulp"]) == content["max_ulp"] == content["worst"][0]["ulp"]
    weighted: NDArray[np.float64] = np.array(bins["mean_ulp"]) * np.array(bins["measured"])
    assert weighted.sum() / content["measured"] == pytest.approx(content["mean_ulp"])
    assert bins["low"][bins["first"].index("0x3c00")] == 1.0
    assert bins["low"][bins["first"].index("0x7c00")] == "inf"
