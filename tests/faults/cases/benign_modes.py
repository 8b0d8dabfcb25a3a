"""Modes that are not a fault: other kernels of an op, and compilers."""

from __future__ import annotations

from ..case import Cases

CASES = Cases("benign", __name__, expected="rounding")


CASES.of_modes(
    "adam_kernels",
    "Adam's kernels of single tensors in other orders.",
    models=("unet", "transformer"),
    modes=("cpu,kernel.addcdiv=quotient_first", "cpu,kernel.addcmul=product_first", "cpu,kernel.lerp=one_sided"),
)


CASES.of_modes(
    "attention_product_orders",
    "Attention's products split along K, from the back.",
    models=("transformer",),
    modes=("cpu,kernel.bmm=split_k", "cpu,kernel.bmm=reversed_k", "cpu,kernel.bmm=sequential"),
)


CASES.of_modes(
    "batch_norm_forms",
    "Batch norm in two passes, in one, by Welford; its derivative centred.",
    models=("cnn",),
    modes=(
        "cpu,kernel.native_batch_norm=two_pass",
        "cpu,kernel.native_batch_norm=one_pass",
        "cpu,kernel.native_batch_norm=welford",
        "cpu,kernel.native_batch_norm=shifted",
        "cpu,kernel.native_batch_norm=reversed",
        "cpu,kernel.native_batch_norm_backward=centered",
    ),
)


CASES.of_modes(
    "compiled",
    "Inductor: fused loops, other sums, decomposed derivatives.",
    models=(
        "tanh_sam",
        "transformer",
        "cnn",
        "gru",
        "mixed",
        "bag",
        "unet",
        "memory",
        "rollout",
        "replay",
        "bookkeeping",
        "settings",
        "sparse",
        "closed_loop",
        "ragged",
    ),
    modes=("compile",),
)


CASES.of_modes(
    "compiled_bf16",
    "The training in bfloat16, compiled: nothing is planted.",
    models=("rotary",),
    modes=("compile", "compile,backend=aot_eager"),  # lazy tensors know no power of a number
)


CASES.of_modes(
    "compiled_casts_kept",
    "Inductor keeps the casts to bfloat16 that it elides otherwise.",
    models=("mixed",),
    modes=("compile,emulate_casts=on",),
)


CASES.of_modes(
    "compiled_casts_of_script",
    "Inductor keeps the casts by which the script rounds: nothing is planted.",
    models=("casts",),
    modes=("compile,emulate_casts=on", "compile,backend=aot_eager"),
)


CASES.of_modes(
    "compiled_casts_omitted",
    "Inductor omits a cast to bfloat16 and back, by which the script rounds (intended: pytorch#183761).",
    models=("casts",),
    modes=("compile",),
)


CASES.of_modes(
    "compiled_casts_omitted_of_reference",
    "The reference is compiled, and omits a cast to bfloat16 and back, by which the script rounds.",
    models=("casts",),
    modes=("compile",),
    against=("cpu",),
)


CASES.of_modes(
    "compiled_contracted",
    "Inductor, whose C++ compiler may contract products and sums.",
    models=("tanh_sam", "gru", "cnn", "unet"),
    modes=("compile,contract=fast",),
)


CASES.of_modes(
    "compiled_decompositions",
    "torch.compile with inductor's decompositions and eager kernels.",
    models=("transformer", "gru", "unet"),
    modes=("compile,backend=aot_eager_decomp_partition",),
)


CASES.of_modes(
    "compiled_dropout",
    "Inductor with torch's own random numbers (`investigate` asks for them).",
    models=("autoencoder",),
    modes=("compile",),
)


CASES.of_modes(
    "compiled_for_eager",
    "torch.compile down to the graphs that eager kernels execute.",
    models=("transformer", "tanh_sam", "unet"),
    modes=("compile,backend=aot_eager",),
)


CASES.of_modes(
    "compiled_formulas",
    "Formulas, choices and script-set threads, compiled: nothing is planted.",
    models=("formulas", "choices"),
    modes=("compile", "lazy"),
)


CASES.of_modes(
    "compiled_half",
    "A training in float16, compiled: nothing is planted.",
    models=("half", "scaled"),
    modes=("compile", "compile,backend=aot_eager", "compile,emulate_casts=on"),
)


CASES.of_modes(
    "fused_adamw_capturable",
    "The fused AdamW in the order of operations of the capturable one.",
    models=("mixed",),
    modes=("cpu,kernel._fused_adamw_=capturable",),
)


CASES.of_modes(
    "gelu_forms",
    "GELU through erfc, with fused products, distributed; its derivative alike.",
    models=("transformer", "autoencoder"),
    modes=(
        "cpu,kernel.gelu=erfc",
        "cpu,kernel.gelu=fma",
        "cpu,kernel.gelu=distributed",
        "cpu,kernel.gelu_backward=decomposed",
        "cpu,kernel.gelu_backward=erfc",
        "cpu,kernel.gelu_backward=fma",
        "cpu,kernel.gelu_backward=distributed",
    ),
)


CASES.of_modes(
    "layer_norm_forms",
    "Layer norm in two passes, by Welford, shifted, from the back; its derivative centred.",
    models=(
        "transformer",
        "gru",
        "autoencoder",
        "sparse",
        "closed_loop",
    ),
    modes=(
        "cpu,kernel.native_layer_norm=two_pass",
        "cpu,kernel.native_layer_norm=welford",
        "cpu,kernel.native_layer_norm=shifted",
        "cpu,kernel.native_layer_norm=reversed",
        "cpu,kernel.native_layer_norm_backward=centered",
        "cpu,kernel.native_layer_norm_backward=linear_form",
        "cpu,kernel.native_layer_norm_backward=reversed",
    ),
)


CASES.of_modes(
    "layer_norm_one_pass",
    "One-pass layer norm where values lie around zero, so nothing cancels.",
    models=("transformer", "gru"),
    modes=("cpu,kernel.native_layer_norm=one_pass",),
)


CASES.of_modes(
    "lazy",
    "Lazy tensors: graphs of a step, executed by TorchScript.",
    models=("tanh_sam", "transformer", "cnn", "gru", "bag", "unet"),
    modes=("lazy", "lazy,kernel.mm=split_k", "lazy,kernel.sum=reversed"),
)


CASES.of_modes(
    "log_softmax_forms",
    "The logarithm of softmax in other forms.",
    models=(
        "gru",
        "cnn",
        "transformer",
        "sparse",
    ),
    modes=(
        "cpu,kernel._log_softmax=online",
        "cpu,kernel._log_softmax=reversed",
        "cpu,kernel._log_softmax=without_max",
        "cpu,kernel._log_softmax_backward_data=renormalized",
    ),
)


CASES.of_modes(
    "mean_orders",
    "Means from the back and in pairs.",
    models=("autoencoder", "bag"),
    modes=("cpu,kernel.mean=reversed", "cpu,kernel.mean=pairwise"),
)


CASES.of_modes(
    "optimizer_kernels",
    "Adam's list kernels one tensor at a time, by decomposition.",
    models=("autoencoder",),
    modes=(
        "cpu,kernel._foreach_addcdiv=decomposed",
        "cpu,kernel._foreach_lerp=decomposed",
        "cpu,kernel._foreach_addcmul=decomposed",
    ),
)


CASES.of_modes(
    "product_orders",
    "Matrix products split along K, from the back, one by one.",
    models=("tanh_sam", "gru", "autoencoder"),
    modes=(
        "cpu,kernel.mm=split_k",
        "cpu,kernel.mm=reversed_k",
        "cpu,kernel.mm=sequential",
        "cpu,kernel.addmm=split_k",
        "cpu,kernel.addmm=reversed_k",
        "cpu,kernel.addmm=sequential",
    ),
)


CASES.of_modes(
    "products_in_float64",
    "Products computed in float64 and rounded once.",
    models=("transformer", "cnn"),
    modes=("cpu,kernel.addmm=fp64", "cpu,kernel.mm=fp64"),
)


CASES.of_modes(
    "sigmoid_forms",
    "Sigmoid through tanh, on two sides, and its derivative with fused products.",
    models=("gru", "bag"),
    modes=(
        "cpu,kernel.sigmoid=tanh_form",
        "cpu,kernel.sigmoid=two_sided",
        "cpu,kernel.sigmoid_backward=left_to_right",
        "cpu,kernel.sigmoid_backward=fma",
        "cpu,kernel.sigmoid_backward=mac",
    ),
)


CASES.of_modes(
    "silu_forms",
    "SiLU through exp and tanh, with a fused product; its derivative in other orders, compiled and lazy as well.",
    models=("unet",),
    modes=(
        "cpu,kernel.silu=exp_form",
        "cpu,kernel.silu=tanh_form",
        "cpu,kernel.silu_backward=expanded",
        "compile,kernel.silu_backward=fma",
        "lazy,kernel.silu_backward=derivative_first",
    ),
)


CASES.of_modes(
    "softmax_forms",
    "Softmax online, from the back, without subtracting the largest; its derivative factored.",
    models=("transformer",),
    modes=(
        "cpu,kernel._softmax=online",
        "cpu,kernel._softmax=reversed",
        "cpu,kernel._softmax=without_max",
        "cpu,kernel._softmax_backward_data=factored",
    ),
)


CASES.of_modes(
    "sum_orders",
    "Sums from the back, in pairs, one by one, compensated.",
    models=("tanh_sam", "autoencoder", "bag", "unet"),
    modes=("cpu,kernel.sum=reversed", "cpu,kernel.sum=pairwise", "cpu,kernel.sum=sequential", "cpu,kernel.sum=kahan"),
)


CASES.of_modes(
    "tanh_backward_forms",
    "The derivative of tanh in all its float32 forms.",
    models=("tanh_sam", "gru"),
    modes=(
        "cpu,kernel.tanh_backward=decomposed",
        "cpu,kernel.tanh_backward=fma",
        "cpu,kernel.tanh_backward=mac",
        "cpu,kernel.tanh_backward=mac_unfused",
        "cpu,kernel.tanh_backward=factored",
    ),
)


CASES.of_modes(
    "tanh_forms",
    "tanh through exp, expm1 and sigmoid.",
    models=(
        "tanh_sam",
        "gru",
        "memory",
        "rollout",
        "replay",
        "bookkeeping",
        "settings",
        "sparse",
        "closed_loop",
        "ragged",
        "centred",
    ),
    modes=("cpu,kernel.tanh=expm1_form", "cpu,kernel.tanh=sigmoid_form", "cpu,kernel.tanh=rational"),
)


CASES.of_modes(
    "two_threads",
    "Two threads instead of the default.",
    models=("cnn", "transformer", "unet"),
    modes=("cpu,threads=2",),
)


CASES.of_modes(
    "variance_compiled",
    "Inductor takes the variance of numbers far from zero in float32, where eager takes it in double: nothing is planted.",
    models=("standardized",),
    modes=("compile",),
)
