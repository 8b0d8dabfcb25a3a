"""Triton's contraction of a*b+c in the kernels that Inductor generates for a device."""

from __future__ import annotations

import importlib
from typing import Any

from ..patches import Patches, Undo

FUSION = "enable_fp_fusion"
"""Triton's option for the contraction. Inductor ties it to `emulate_precision_casts` (torch 2.13), or leaves it at
Triton's default, which the variable TRITON_DEFAULT_FP_FUSION sets."""


def contract_in_triton(wanted: bool) -> Undo:
    """Turn the contraction on or off; return the undo. Do nothing in a torch that leaves the contraction to Triton.

    The keys of Inductor's caches do not include the option, so the caches are off until the undo.
    """
    kernel: Any = getattr(importlib.import_module("torch._inductor.codegen.triton"), "TritonKernel", None)
    if not isinstance(vars(kernel or object).get("triton_meta_common"), classmethod):
        return lambda: None

    def stated(before: Any) -> Any:
        return classmethod(lambda cls: {**before.__func__(cls), FUSION: wanted})

    with Patches("the contraction of Triton's kernels") as patches:
        patches.wrap(kernel, "triton_meta_common", stated)
        for module, option in (
            ("torch._inductor.config", "fx_graph_cache"),
            ("torch._functorch.config", "enable_autograd_cache"),
        ):
            patches.wrap(importlib.import_module(module), option, lambda before: False)
    return patches.undo
