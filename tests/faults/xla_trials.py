"""The part of the benchmark that is compared with mode `xla`: what is planted into it, and what is none of its faults.

Most are cases of the other modes, which change the script, and are executed in `xla` here. The others are of torch_xla
itself: a lowering that computes otherwise, variables that make it round differently, where graphs are cut, and whose
random numbers are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .case import BENIGN, Case, Trial, all_cases

FAST = "env.XLA_FLAGS=--xla_cpu_enable_fast_math=true"

EVERYWHERE = {
    "as_it_is": "",
    "cut_by_step": "mark_step=step",
    "not_cut": "mark_step=off",
    "op_by_op": "execute=op",
    "fast_math": FAST,
    "one_thread": "threads=1",
}
"""Ways to have torch_xla execute a script that are not a fault of it, on every model."""

HARMLESS_LOWERINGS: Mapping[str, tuple[str, ...]] = {
    "tanh_sam": ("tanh_backward=fma", "tanh_backward=mac", "mm=reversed_k"),
    "bag": ("mean=pairwise",),
    "contrast": ("_log_softmax=online", "mm=split_k"),
    "memory": ("tanh=expm1_form",),
    "settings": (),
    "denoise": (),
    "formulas": (),
    "autoencoder": (),
}
"""Other kernels of ops in torch_xla's place that are as exact as its own."""

HARMLESS: Mapping[str, tuple[str, ...]] = {
    "tanh_sam": ("linear_by_einsum",),
    "contrast": ("log_softmax_forms",),
}
"""Benign cases of the other modes."""

WRONG_LOWERINGS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "tanh_sam": (("backward", "tanh_backward=bf16"), ("forward", "tanh=bf16"), ("backward", "mm=bf16")),
    "bag": (("backward", "sigmoid_backward=bf16"),),
    "contrast": (("forward", "_log_softmax=bf16"), ("backward", "tanh_backward=bf16")),
}
"""The phase in which each lowering is to blame that is less exact than torch_xla's own."""

PLANTED: Mapping[str, tuple[str, ...]] = {
    "tanh_sam": (
        "argument/mean_over_one_less",
        "optimizer/sam_norm_per_tensor",
        "optimizer/sam_without_restore",
        "setup/batch_order",
        "setup/other_init",
        "setup/sam_radius",
        "structure/loss_broadcasts",
        "structure/regularizer_added",
    ),
    "bag": ("argument/padding_word", "loop/accumulation_forgets", "loop/accumulation_not_averaged", "setup/init_gain"),
    "formulas": ("argument/elu_alpha", "argument/leaky_slope"),
}
"""Cases of the other modes by kind and name."""

OWN_FAULTS: Mapping[str, Mapping[str, Any]] = {
    "autoencoder": {"phase": "forward", "op": "native_layer_norm"},
    "formulas": {"phase": "backward", "op": "elu_backward"},
}
"""Models on which torch_xla 2.9 is wrong by itself, and where: its elu_backward takes an input for an output, and its layer
norm has the variance from the mean of the squares, of which nothing is left where the values lie far from zero."""

BF16 = ("tanh_sam", "bag", "formulas")
"""Models that are also executed with XLA_USE_BF16, which has the device compute in bfloat16 what torch says is float32."""


def models() -> list[str]:
    return list(HARMLESS_LOWERINGS)


def trials(model: str) -> list[Trial]:
    """Every trial of mode `xla` on a model."""
    own = [
        *(_everywhere(model, name, keys) for name, keys in EVERYWHERE.items()),
        *(_own(model, BENIGN, _named(one), f"kernel.{one}", "rounding") for one in HARMLESS_LOWERINGS[model]),
        *(
            _own(
                model,
                "lowering",
                _named(one),
                f"kernel.{one}",
                "beyond-rounding",
                phase=phase,
                op=one.partition("=")[0],
            )
            for phase, one in WRONG_LOWERINGS.get(model, ())
        ),
    ]
    if model in BF16:
        own.append(_own(model, "downcast", "bfloat16_of_the_device", "env.XLA_USE_BF16=1", "different-setup"))
    if model == "autoencoder":
        own.append(_own(model, "randomness", "drawn_by_the_device", "fallback_random=off", "different-setup"))
    kept = [f"{BENIGN}/{name}" for name in HARMLESS.get(model, ())]
    return [*own, *(_in_xla(model, name) for name in (*kept, *PLANTED.get(model, ())))]


def _everywhere(model: str, name: str, keys: str) -> Trial:
    fault = OWN_FAULTS.get(model)
    if fault is None:
        return _own(model, BENIGN, name, keys, "rounding")
    return _own(model, "torch_xla", name, keys, "beyond-rounding", **fault)


def _named(lowering: str) -> str:
    return lowering.replace("=", "_by_").strip("_")


def _own(model: str, kind: str, name: str, keys: str, expected: str, **culprit: Any) -> Trial:
    """A trial of a mode alone, which no family declares."""
    mode = f"xla,{keys}" if keys else "xla"
    case = Case(
        kind=kind,
        name=name,
        summary="",
        models=(model,),
        modes=(mode,),
        expected=expected,
        culprits=(culprit,) if culprit else (),
    )
    return Trial(case, model, mode)


def _in_xla(model: str, stated: str) -> Trial:
    (case,) = (case for case in all_cases() if f"{case.kind}/{case.name}" == stated)
    return Trial(replace(case, modes=("xla",), models=(model,), against=(), reversed=()), model, "xla")
