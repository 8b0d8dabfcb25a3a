"""Settings of torch's kernels as keys of a mode: refused where they can have no effect."""

from __future__ import annotations

import pytest

from numdrift.harness.errors import ModeError
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.modes.setting_keys import SETTING_KEYS


@pytest.mark.parametrize(
    "mode",
    [
        "fast=cuda,tf32=on",
        "cpu,matmul_precision=medium",
        "cpu,mkldnn=off",
        "cpu,sdpa=flash",
        "cuda,sdpa=cudnn,benchmark=on,cudnn=off",
        "compile,device=cuda,inductor.triton.cudagraphs=true,tf32=convolutions",
        "cpu,device=cuda:1,reduced_precision_reduction=off",
        "cuda,matmul_precision=high,tf32=on",
        "lazy,mkldnn=off,deterministic=warn",
    ],
)
def test_a_setting_is_a_key_of_the_mode(mode: str) -> None:
    spec = parse_mode(mode)
    assert parse_mode(str(spec)) == spec
    assert any(getattr(spec, key) is not None for key in SETTING_KEYS)


@pytest.mark.parametrize(
    ("mode", "remedy"),
    [
        (
            "cpu,tf32=on",
            "tf32 has no effect on cpu; for products in reduced precision, use matmul_precision=high or medium",
        ),
        ("compile,cudnn=off", "cudnn has no effect on cpu; the corresponding key is mkldnn"),
        ("lazy,benchmark=on", "benchmark has no effect on lazy"),
        ("cuda,device=cpu,reduced_precision_reduction=on", "has no effect on cpu"),
        ("cuda,mkldnn=off", "the corresponding key is cudnn"),
        ("cpu,sdpa=efficient", "sdpa=efficient: cpu has no such attention kernel; it has math and flash"),
        ("lazy,sdpa=math", "decomposes attention"),
        ("xla,deterministic=on", "deterministic has no effect on xla"),
        ("cuda,tf32=off,matmul_precision=medium", "contradict each other: leave one of them out"),
        ("cuda,tf32=maybe", "known: convolutions, off, on, products"),
        ("cpu,deterministic=no", "did you mean 'on'"),
    ],
)
def test_what_has_no_effect_is_refused_with_one_line(mode: str, remedy: str) -> None:
    with pytest.raises(ModeError) as refused:
        parse_mode(mode)
    assert remedy in str(refused.value) and "\n" not in str(refused.value)
