"""Modes whose kernels are less exact, and what compilers do to a formula."""

from __future__ import annotations

from ..case import Cases

CASES = Cases("kernel", __name__)


CASES.of_modes(
    "adam_quotient_bf16",
    "Adam divides its moments in bfloat16.",
    models=("autoencoder",),
    modes=("cpu,kernel._foreach_addcdiv=bf16",),
    culprit={"phase": "optimizer", "op": "_foreach_addcdiv_"},
)


CASES.of_modes(
    "addcdiv_bf16",
    "AdamW divides its moments in bfloat16, one tensor at a time.",
    models=("unet", "transformer"),
    modes=("cpu,kernel.addcdiv=bf16",),
    culprit={"phase": "optimizer", "op": "addcdiv_"},
)


CASES.of_modes(
    "addmm_tf32",
    "Linear layers multiply with TF32's 10 bits, as GPUs do where it is allowed.",
    models=("tanh_sam", "cnn"),
    modes=("cpu,kernel.addmm=tf32",),
    culprit={"phase": "forward", "op": "addmm"},
)


CASES.of_modes(
    "attention_products_bf16",
    "Attention multiplies in bfloat16 though the training is in float32.",
    models=("transformer",),
    modes=("cpu,kernel.bmm=bf16",),
    culprit={"phase": ("forward", "backward"), "op": "bmm"},
)


CASES.of_modes(
    "batch_norm_bf16",
    "Batch norm takes its statistics in bfloat16.",
    models=("cnn",),
    modes=("cpu,kernel.native_batch_norm=bf16",),
    culprit={"phase": "forward", "op": "native_batch_norm"},
)


CASES.of_modes(
    "bias_gradient_bf16",
    "Sums, those of the bias gradients among them, accumulate in bfloat16, in a model of 16 bits.",
    models=("half", "scaled", "mixed"),
    modes=("cpu,kernel.sum=bf16",),
    hidden=True,
    culprit={"op": ("sum", "mean", "mse_loss")},
)


CASES.of_modes(
    "bias_gradient_bf16_of_reference",
    "Sums accumulate in bfloat16 on the reference's side, in a model of 16 bits.",
    models=("half", "mixed"),
    modes=("cpu,kernel.sum=bf16",),
    against=("cpu", "compile"),
    hidden=True,
    culprit={"op": ("sum", "mean", "mse_loss")},
)


CASES.of_modes(
    "expm1_compiled",
    "Inductor takes exp(x) - 1 for expm1(x), which loses most digits of small x: nothing is planted.",
    models=("interest",),
    modes=("compile", "compile,emulate_casts=on"),
    culprit={"phase": "forward", "module": "interest"},
)


CASES.of_modes(
    "expm1_compiled_reference",
    "The reference is compiled, and takes exp(x) - 1 for expm1(x): nothing is planted.",
    models=("interest",),
    modes=("compile",),
    against=("cpu",),
    hidden=True,
    culprit={"phase": "forward", "module": "interest"},
)


CASES.of_modes(
    "floor_division_compiled",
    "Inductor's integer quotient is the floor of a rounded one, so that some rows of a table are others: nothing is planted.",
    models=("quantized",),
    modes=("compile",),
    hidden=True,
    culprit={"phase": "forward", "module": "hours"},
)


CASES.of_modes(
    "fused_adamw_bf16_moments",
    "The fused AdamW keeps its moments with bfloat16's digits.",
    models=("mixed",),
    modes=("cpu,kernel._fused_adamw_=bf16_moments",),
    culprit={"phase": "optimizer", "op": "_fused_adamw_"},
)


CASES.of_modes(
    "grid_cancelled",
    "Unsafe mathematics of the compiler cancel a large number that the script adds and takes away to round: nothing is planted.",
    models=("casts",),
    modes=("compile,emulate_casts=on,inductor.cpp.enable_unsafe_math_opt_flag=on",),
    hidden=True,
    culprit={"phase": "forward", "module": "quarters"},
)


CASES.of_modes(
    "layer_norm_backward_bf16",
    "The backward of layer norm computes in bfloat16.",
    models=("transformer", "gru", "sparse", "closed_loop"),
    modes=("cpu,kernel.native_layer_norm_backward=bf16",),
    culprit={"phase": "backward", "op": "native_layer_norm_backward"},
)


CASES.of_modes(
    "layer_norm_one_pass",
    "The variance as E[x^2] - E[x]^2, which cancels for readings near 100 that vary by 1.",
    models=("autoencoder",),
    modes=("cpu,kernel.native_layer_norm=one_pass",),
    culprit={"phase": "forward", "module": "scale", "op": "native_layer_norm"},
)


CASES.of_modes(
    "log_softmax_backward_bf16",
    "The gradient of the loss itself is computed in bfloat16.",
    models=("gru", "transformer", "sparse"),
    modes=("cpu,kernel._log_softmax_backward_data=bf16",),
    culprit={"phase": "backward", "op": "_log_softmax_backward_data"},
)


CASES.of_modes(
    "mm_bf16",
    "The products of linear layers' backward are taken in bfloat16.",
    models=("gru", "autoencoder"),
    modes=("cpu,kernel.mm=bf16",),
    culprit={"phase": "backward", "op": "mm"},
)


CASES.of_modes(
    "sigmoid_backward_bf16",
    "The derivative of the gates is computed in bfloat16.",
    models=("gru", "bag"),
    modes=("cpu,kernel.sigmoid_backward=bf16",),
    culprit={"phase": "backward", "op": "sigmoid_backward"},
)


CASES.of_modes(
    "silu_backward_bf16",
    "The derivative of SiLU is computed in bfloat16, in each way of executing it.",
    models=("unet",),
    modes=("cpu,kernel.silu_backward=bf16", "compile,kernel.silu_backward=bf16", "lazy,kernel.silu_backward=bf16"),
    culprit={"phase": "backward", "op": "silu_backward"},
)


CASES.of_modes(
    "softmax_bf16",
    "The attention weights are computed in bfloat16.",
    models=("transformer",),
    modes=("cpu,kernel._softmax=bf16",),
    culprit={"phase": "forward", "op": "_softmax"},
)


CASES.of_modes(
    "sum_bf16",
    "Sums, those of the bias gradients among them, accumulate in bfloat16.",
    models=("tanh_sam", "autoencoder"),
    modes=("cpu,kernel.sum=bf16",),
    culprit={"op": ("sum", "mse_loss")},
)


CASES.of_modes(
    "sum_bf16_of_reference",
    "Sums accumulate in bfloat16 on the reference's side, by a kernel that its mode puts in place.",
    models=("tanh_sam", "autoencoder"),
    modes=("cpu,kernel.sum=bf16",),
    against=("cpu",),
    culprit={"op": ("sum", "mse_loss")},
)


CASES.of_modes(
    "tanh_backward_bf16",
    "The derivative of tanh squares its output in bfloat16: one part in 256 is lost.",
    models=("tanh_sam", "gru", "sparse", "closed_loop", "ragged", "centred"),
    modes=("cpu,kernel.tanh_backward=bf16",),
    culprit={"phase": "backward", "op": "tanh_backward"},
)


CASES.of_modes(
    "tanh_backward_bf16_compiled",
    "As tanh_backward_bf16, within a graph that inductor compiled.",
    models=("tanh_sam",),
    modes=("compile,kernel.tanh_backward=bf16",),
    culprit={"phase": "backward", "op": "tanh_backward"},
)


CASES.of_modes(
    "tanh_backward_bf16_lazy",
    "As tanh_backward_bf16, in lazy mode.",
    models=("tanh_sam",),
    modes=("lazy,kernel.tanh_backward=bf16",),
    culprit={"phase": "backward", "op": "tanh_backward"},
)


CASES.of_modes(
    "tanh_backward_truncated",
    "As tanh_backward_bf16, but cut off instead of rounded: the error has a sign and adds up.",
    models=("tanh_sam",),
    modes=("cpu,kernel.tanh_backward=bf16_truncated",),
    culprit={"phase": "backward", "op": "tanh_backward"},
)
