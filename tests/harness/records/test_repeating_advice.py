"""The setting that makes a mode repeat: by device and op, and never one that the mode has already."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.modes.repeating_advice import WITHOUT_KERNEL, repeating_advice


@pytest.mark.parametrize(
    ("mode", "op", "advice"),
    [
        ("cpu", "", "add deterministic=on to the mode"),
        ("cpu", "aten.index_put.default", "add deterministic=on to the mode"),
        ("cpu", "aten._index_put_impl_", "add deterministic=on to the mode"),
        ("cpu", "mine.sum_of_threads.default", "add threads=1 to the mode"),
        ("lazy", "aten.index_put_.default", "add deterministic=on to the mode"),
        ("cpu,threads=1", "mine.sum_of_threads.default", "replace sum_of_threads: one thread does not make it repeat"),
        ("compile", "aten.embedding_dense_backward.default", "add deterministic=on to the mode"),
        ("compile,deterministic=on", "aten.mm.default", "add threads=1 to the mode"),
        ("cuda", "aten.index_put.default", "add deterministic=on to the mode"),
        (
            "cuda", "aten._scaled_dot_product_efficient_attention_backward.default",
            "add deterministic=on,sdpa=math to the mode (with 16-bit values sdpa=flash repeats, too)",
        ),
        (
            "cuda", "aten.avg_pool3d_backward.default",
            "replace avg_pool3d_backward, or compute it on the CPU: torch has no kernel that repeats for this device",
        ),
        (
            "cuda,deterministic=on", "aten.index_add.default",
            "replace index_add, or compute it on the CPU: torch has no kernel that repeats for this device",
        ),
        ("xla", "aten.index_add.default", "on a GPU, add env.XLA_FLAGS=--xla_gpu_deterministic_ops=true to the mode"),
    ],
)  # fmt: skip
def test_the_advice_fits_the_device_and_the_op(mode: str, op: str, advice: str) -> None:
    spec = parse_mode(mode)
    assert repeating_advice(spec, [op] if op else [], compiled=spec.capabilities.compiles) == advice


def test_an_op_without_a_kernel_that_repeats_is_an_op_of_torch() -> None:
    alternatives = [
        *(f"{name}_backward" for name in (
            "avg_pool3d", "_adaptive_avg_pool2d", "adaptive_max_pool2d", "fractional_max_pool3d", "upsample_bilinear2d",
            "reflection_pad2d", "grid_sampler_3d", "_ctc_loss",
        )),
        "max_unpool3d", "nll_loss2d_forward", "histc", "bincount", "median", "kthvalue", "cumsum", "cumprod",
    ]  # fmt: skip
    assert all(hasattr(torch.ops.aten, name) and WITHOUT_KERNEL.fullmatch(name) for name in alternatives)


@pytest.mark.parametrize("name", ["index_put", "index_copy", "put"])
def test_the_kernels_of_the_cpu_that_repeat_do(name: str) -> None:
    torch.manual_seed(0)
    values, where, base = torch.randn(60_000), torch.randint(0, 50, (60_000,)), torch.zeros(50)
    computations: dict[str, Callable[[], torch.Tensor]] = {
        "index_put": lambda: base.index_put((where,), values, accumulate=True),
        "put": lambda: base.put(where, values, accumulate=True),
        "index_copy": lambda: base.index_copy(0, where, values),
    }
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        results = [computations[name]() for _ in range(12)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(result, results[0]) for result in results)
