"""Sixty ops of torch with PyTorch's own samples, compiled against eager: what is rounding, and what is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..conftest import Numdrift

OPS = (
    "abs", "acos", "add", "addmm", "amax", "amin", "argmax", "argmin", "asin", "atan", "atan2", "bmm", "cat", "ceil",
    "clamp", "cos", "cosh", "cumprod", "cumsum", "diff", "div.floor_rounding", "div.no_rounding_mode", "div.trunc_rounding",
    "erf", "erfc", "exp", "exp2", "expm1", "floor", "floor_divide", "fmod", "gather", "index_select", "lerp", "log",
    "log10", "log1p", "log2", "logsumexp", "matmul", "mean", "mul", "nn.functional.gelu", "nn.functional.layer_norm",
    "nn.functional.softplus", "pow", "prod", "reciprocal", "remainder", "round", "rsqrt", "sigmoid", "sign", "sin",
    "softmax", "sqrt", "std", "sum", "tanh", "var",
)  # fmt: skip


@pytest.mark.exhaustive
def test_sixty_ops_are_compared(numdrift: Numdrift, tmp_path: Path) -> None:
    pytest.importorskip("expecttest")
    pattern = f"^({'|'.join(op.replace('.', '[.]') for op in OPS)})$"
    done = numdrift("check", "--ops", pattern, "--samples", "2", "--json", "ops.json", timeout=3600)
    rows = json.loads((tmp_path / "ops.json").read_text())["rows"]
    assert {row["op"] for row in rows} == set(OPS), done.stderr
    verdicts = {row["op"]: row["verdict"] for row in rows}
    assert all(verdict in ("identical", "rounding", "beyond-rounding") for verdict in verdicts.values()), verdicts
    assert all(Path(tmp_path / row["folder"]).is_dir() for row in rows)
