"""Triton contracts products and sums as the mode states it."""

from __future__ import annotations

from typing import Any

import pytest
import torch._functorch.config
import torch._inductor.config
from torch._inductor.codegen.triton import TritonKernel

from numdrift.harness.torch_private.compiler.triton_numerics import FUSION, contract_in_triton

triton: Any = TritonKernel


@pytest.mark.skipif(not hasattr(TritonKernel, "triton_meta_common"), reason="this torch leaves it to Triton")
def test_a_kernel_is_told_whether_to_contract() -> None:
    class Template(TritonKernel):
        """A kernel of another sort."""

    before, cached = triton.triton_meta_common(), torch._inductor.config.fx_graph_cache
    outer = contract_in_triton(False)
    # another mode is compiled within the first one
    inner = contract_in_triton(True)
    assert triton.triton_meta_common() == {**before, FUSION: True}
    inner()
    assert triton.triton_meta_common() == {**before, FUSION: False}
    template: Any = Template
    assert template.triton_meta_common()[FUSION] is False
    assert not torch._inductor.config.fx_graph_cache and not torch._functorch.config.enable_autograd_cache
    outer()
    assert triton.triton_meta_common() == before and torch._inductor.config.fx_graph_cache == cached
    assert isinstance(vars(TritonKernel)["triton_meta_common"], classmethod)


def test_a_torch_that_leaves_it_to_triton_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(TritonKernel, "triton_meta_common", raising=False)
    undo = contract_in_triton(False)
    assert not hasattr(TritonKernel, "triton_meta_common")
    undo()
