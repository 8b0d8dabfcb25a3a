"""The investigations of the list, as data."""

from __future__ import annotations

from .rows import FAULT, NONFINITE, REPRODUCER, SETTING, TRAINING, UNREPEATABLE, ExpectedCause, Investigation, Script

SAM, CHAR, RESNET = (Script(f"reproducers/{name}.py") for name in ("sam_tanh", "char_gpt", "resnet_digits"))
GPT, TRANSFORMER, CONVNET, EXPERTS, MASKED, RECOMMENDER = (
    Script(f"tests/gpu/trainings/{name}.py", device_option=True)
    for name in ("gpt", "transformer", "convnet", "experts", "masked", "recommender")
)

EPOCHS, STEPS = ("--epochs", "10"), ("--steps", "8")
ALIKE = "deterministic=on"
"""What makes trainings repeat that add up gradients in any order."""

EXACT = "tf32=off"
"""Convolutions without TF32, which is on by default."""

FLASH = f"sdpa=flash,{ALIKE}"
WHOLE = ("--confirm",)

REPRODUCERS = (
    Investigation("sam", REPRODUCER, "MLP under SAM", SAM, ("cpu", "cuda"), arguments=EPOCHS, options=WHOLE, needs=("sklearn",)),
    Investigation(
        "sam-compiled", REPRODUCER, "MLP under SAM", SAM, ("cuda", "compiled=compile@cuda"), arguments=EPOCHS, options=WHOLE,
        needs=("sklearn",),
    ),
    Investigation("char", REPRODUCER, "character transformer", CHAR, ("cpu", "cuda"), arguments=STEPS, options=WHOLE, within=(4, 30)),
    Investigation(
        "char-compiled", REPRODUCER, "character transformer", CHAR, ("cuda", "compiled=compile@cuda"), arguments=STEPS,
        options=WHOLE, within=(4, 30),
    ),
    Investigation(
        "resnet", REPRODUCER, "residual network", RESNET, (f"cpu=cpu,{ALIKE}", f"cuda=cuda,{EXACT},{ALIKE}"), arguments=STEPS,
        options=WHOLE, needs=("sklearn",),
    ),
    Investigation(
        "resnet-compiled", REPRODUCER, "residual network", RESNET,
        (f"cuda=cuda,{EXACT},{ALIKE}", f"compiled=compile@cuda,{EXACT},{ALIKE}"), arguments=STEPS, options=WHOLE,
        needs=("sklearn",),
    ),
)  # fmt: skip

TRAININGS = (
    Investigation("gpt", TRAINING, "bf16 GPT, fused AdamW", GPT, (f"cpu=cpu,{ALIKE}", f"cuda=cuda,{FLASH}"), arguments=STEPS),
    Investigation(
        "gpt-compiled", TRAINING, "bf16 GPT, flash attention, fused AdamW", GPT,
        (f"cuda=cuda,{FLASH}", f"compiled=compile@cuda,{FLASH}"), arguments=STEPS,
    ),
    Investigation(
        "convnet", TRAINING, "convolutional network, dropout", CONVNET, (f"cpu=cpu,{ALIKE}", f"cuda=cuda,{EXACT},{ALIKE}"),
        arguments=STEPS,
    ),
    Investigation(
        "convnet-compiled", TRAINING, "convolutional network, dropout", CONVNET,
        (f"cuda=cuda,{EXACT},{ALIKE}", f"compiled=compile@cuda,{EXACT},{ALIKE}"), arguments=STEPS,
    ),
    Investigation("experts", TRAINING, "mixture of experts", EXPERTS, (f"cpu=cpu,{ALIKE}", f"cuda=cuda,{ALIKE}"), arguments=STEPS),
    Investigation(
        "experts-compiled", TRAINING, "mixture of experts", EXPERTS, (f"cuda=cuda,{ALIKE}", f"compiled=compile@cuda,{ALIKE}"),
        arguments=STEPS,
    ),
)  # fmt: skip

BEYOND = ("beyond-rounding",)
TANH = ExpectedCause("tanh_backward", "self.layers(x)")

FAULTS = (
    Investigation(
        "tanh", FAULT, "tanh_backward in bfloat16", SAM, ("cuda", "faulty=cuda,kernel.tanh_backward=bf16"), BEYOND, (TANH,),
        arguments=EPOCHS, options=WHOLE, needs=("sklearn",),
    ),
    Investigation(
        "tanh-compiled", FAULT, "tanh_backward in bfloat16", SAM, ("cuda", "faulty=compile@cuda,kernel.tanh_backward=bf16"),
        BEYOND, (TANH,), arguments=EPOCHS, needs=("sklearn",),
    ),
    Investigation(
        "scale", FAULT, "attention scaled by 1/64 instead of 1/8", GPT, (f"cuda=cuda,{FLASH}", f"faulty=cuda,{FLASH},env.FAULT=scale"),
        BEYOND, (ExpectedCause("dot_product", "scaled_dot_product_attention("),), arguments=STEPS,
    ),
    Investigation(
        "eps", FAULT, "layer norms with epsilon 1e-2 instead of 1e-5", TRANSFORMER,
        (f"cuda=cuda,{ALIKE}", f"faulty=cuda,{ALIKE},env.FAULT=eps"), BEYOND, (ExpectedCause("layer_norm", ".norm1("),),
        arguments=STEPS,
    ),
    Investigation(
        "dropout", FAULT, "dropout that does not scale what it keeps", TRANSFORMER,
        (f"cuda=cuda,{ALIKE}", f"faulty=cuda,{ALIKE},env.FAULT=dropout"), BEYOND, (ExpectedCause("div", "x * mask / KEPT"),),
        arguments=STEPS,
    ),
    Investigation(
        "mask", FAULT, "a causal mask off by one", TRANSFORMER, (f"cuda=cuda,{ALIKE}", f"faulty=cuda,{ALIKE},env.FAULT=mask"),
        BEYOND, (ExpectedCause("tril", ".tril("),), arguments=STEPS,
    ),
    Investigation(
        "bias", FAULT, "Adam without its bias correction", EXPERTS, (f"cuda=cuda,{ALIKE}", f"faulty=cuda,{ALIKE},env.FAULT=bias"),
        BEYOND, (ExpectedCause("div", "/ corrected"),), arguments=STEPS,
    ),
)  # fmt: skip

UNREPEATABLES = (
    Investigation(
        "free-gpt", UNREPEATABLE, "bf16 GPT, against itself", GPT, ("cuda=cuda,sdpa=flash", "again=cuda,sdpa=flash"),
        arguments=STEPS,
    ),
    Investigation(
        "free-gpt-compiled", UNREPEATABLE, "bf16 GPT", GPT, ("cuda", "compiled=compile@cuda"), arguments=STEPS,
    ),
    Investigation(
        "free-gpt-scale", UNREPEATABLE, "bf16 GPT, attention scaled by 1/64 instead of 1/8", GPT, ("cuda", "faulty=cuda,env.FAULT=scale"),
        BEYOND, (ExpectedCause("dot_product", "scaled_dot_product_attention("),), arguments=STEPS,
    ),
    Investigation(
        "free-resnet", UNREPEATABLE, "residual network", RESNET, (f"cuda=cuda,{EXACT}", f"compiled=compile@cuda,{EXACT}"),
        arguments=STEPS, needs=("sklearn",),
    ),
    Investigation(
        "free-resnet-faulty", UNREPEATABLE, "residual network, addmm in bfloat16", RESNET,
        (f"cuda=cuda,{EXACT}", f"faulty=cuda,{EXACT},kernel.addmm=bf16"), BEYOND, (ExpectedCause("addmm"),),
        arguments=STEPS, needs=("sklearn",),
    ),
    Investigation(
        "free-recommender", UNREPEATABLE, "recommender with embeddings", RECOMMENDER, ("cuda", "compiled=compile@cuda"),
        arguments=STEPS,
    ),
    Investigation(
        "free-recommender-scale", UNREPEATABLE, "recommender, a tower scaled by 1.001", RECOMMENDER,
        ("cuda", "faulty=cuda,env.FAULT=scale"), BEYOND, (ExpectedCause("mul", "tower * 1.001"),), arguments=STEPS,
    ),
)  # fmt: skip

SETTINGS = (
    Investigation(
        "tf32", SETTING, "matrix products in TF32", TRANSFORMER, (f"cuda=cuda,{ALIKE}", f"tf32=cuda,tf32=on,{ALIKE}"), BEYOND,
        (ExpectedCause(setting="tf32"),), arguments=STEPS, needs=("cuda",),
    ),
    Investigation(
        "tf32-default", SETTING, "convolutions in TF32, torch's default", CONVNET, (f"cpu=cpu,{ALIKE}", f"cuda=cuda,{ALIKE}"), BEYOND,
        (ExpectedCause(setting="tf32"),), arguments=STEPS, needs=("cuda",),
    ),
    Investigation(
        "sdpa", SETTING, "attention by torch's own composition", GPT, (f"flash=cuda,{FLASH}", f"math=cuda,sdpa=math,{ALIKE}"),
        ("rounding",), (ExpectedCause(setting="sdpa"),), arguments=STEPS, needs=("cuda",),
    ),
    Investigation(
        "cudnn", SETTING, "convolutions without cuDNN", CONVNET,
        (f"cuda=cuda,{EXACT},{ALIKE}", f"native=cuda,cudnn=off,{EXACT},{ALIKE}"), ("rounding",), (ExpectedCause(setting="cudnn"),),
        arguments=STEPS, needs=("cuda",),
    ),
    Investigation(
        "reductions", SETTING, "bf16 products whose partial sums are kept in 16 bits", GPT,
        (f"cuda=cuda,{FLASH}", f"whole=cuda,reduced_precision_reduction=off,{FLASH}"),
        causes=(ExpectedCause(setting="reduced_precision_reduction"),), arguments=STEPS, needs=("cuda",),
    ),
)  # fmt: skip

NONFINITES = (
    Investigation(
        "nan", NONFINITE, "cuDNN's attention backward with a mask (pytorch#196678)", MASKED, ("math=cuda,sdpa=math", "cuda"),
        ("nonfinite",), (ExpectedCause(setting="sdpa"), ExpectedCause("attention", "scaled_dot_product_attention(")),
        said="the gradient of `q.", arguments=("--steps", "4"), needs=("cuda", "nan of cuDNN"),
    ),
)  # fmt: skip

INVESTIGATIONS = (*REPRODUCERS, *TRAININGS, *FAULTS, *UNREPEATABLES, *SETTINGS, *NONFINITES)
