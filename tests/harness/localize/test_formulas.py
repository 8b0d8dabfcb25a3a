"""Calls as people write them: the same value, and nothing where a formula would say less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.localize.scripts.formulas import formula_of

ATEN = "torch.ops.aten"


@pytest.mark.parametrize(
    ("lines", "formula"),
    [
        (
            [
                f"t1 = {ATEN}.mul.Tensor(y, y)",
                f"t2 = {ATEN}.sub.Tensor(1, t1)",
                f"t3 = {ATEN}.mul.Tensor(g, t2)",
                "return [t3]",
            ],
            ["g * (1 - y * y)"],
        ),
        (
            [f"t1 = {ATEN}.exp.default(x)", f"t2 = {ATEN}.div.Tensor(t1, {ATEN}.neg.default(t1))", "return [t2]"],
            ["t1 = exp(x)", "t1 / -t1"],
        ),
        ([f"t1 = {ATEN}.sum.dim_IntList(x.t(), [0], True)", "return [t1]"], ["sum(x.t(), [0], True)"]),
        ([f"t1 = {ATEN}.add.Tensor(x, y, alpha=2)", "return [t1]"], ["add(x, y, alpha=2)"]),
        (
            [f"t1 = {ATEN}._to_copy.default(x, dtype=held(torch.bfloat16))", "return [t1]"],
            ["_to_copy(x, dtype=torch.bfloat16)"],
        ),
        (
            [
                f"[t1, _, t2] = {ATEN}.native_layer_norm.default(x, [8], None, None, 1e-05)",
                "return [t1, t2.view((8,))]",
            ],
            ["t1, _, t2 = native_layer_norm(x, [8], None, None, 1e-05)", "t1, t2.view((8,))"],
        ),
        (["x = x.clone()", f"{ATEN}.add_.Tensor(x, 1)", "return [x]"], []),
        ([f"t1 = {ATEN}.add_.Tensor(x, 1)", "return [t1]"], []),
        (["torch.set_rng_state(generator_state)", f"t1 = {ATEN}.randn.default([2])", "return [t1]"], []),
        (["return [given_a]"], []),
        ([f"t{n} = {ATEN}.exp.default(x)" for n in range(20)] + ["return [t1]"], []),
    ],
)
def test_calls_are_formulas(lines: Sequence[str], formula: Sequence[str]) -> None:
    assert formula_of(lines) == formula


OPS = {"add": ("x", "y"), "sub": ("x", "y"), "mul": ("x", "y"), "rsub": ("x", "y"), "neg": ("x",), "reciprocal": ("x",)}


@given(st.lists(st.tuples(st.sampled_from(sorted(OPS)), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8))
def test_a_formula_gives_the_bits_of_its_calls(calls: list[tuple[str, int, int]]) -> None:
    names, lines = ["x", "y"], []
    for number, (op, first, second) in enumerate(calls):
        overload = {"neg": "default", "reciprocal": "default"}.get(op, "Tensor")
        given = [names[at % len(names)] for at in (first, second)][: len(OPS[op])]
        lines.append(f"t{number} = {ATEN}.{op}.{overload}({', '.join(given)})")
        names.append(f"t{number}")
    lines.append(f"return [{names[-1]}]")
    known: dict[str, Any] = {"torch": torch, "x": torch.tensor([0.3, -1.7, 1e-8]), "y": torch.tensor([2.9, 0.1, -3e7])}
    executed = dict(known)
    exec("\n".join(lines[:-1]), executed)  # noqa: S102, written above
    *steps, result = formula_of(lines) or ["", "0"]
    if result != "0":
        said = dict(known)
        exec("\n".join(steps), said)  # noqa: S102, made of what is written above
        assert torch.equal(eval(result, said).nan_to_num(), executed[names[-1]].nan_to_num())
