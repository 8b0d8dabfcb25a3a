"""Several faults at once, each a culprit of its own."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .. import optimizers
from ..case import Cases
from ..training import KERNELS, Training, modules

CASES = Cases("several", __name__)


@CASES.planted(
    models=("bag",),
    modes=(
        "cpu,kernel.sigmoid_backward=bf16",
        "compile,kernel.sigmoid_backward=bf16",
        "lazy,kernel.sigmoid_backward=bf16",
    ),
    culprit=({"phase": "backward", "op": "embedding_dense_backward"}, {"phase": "backward", "op": "sigmoid_backward"}),
)
def embedding_and_sigmoid(training: Training) -> None:
    """The embedding takes word 0 for padding, and the derivative of the sigmoid is in bfloat16."""
    modules(training, nn.Embedding)[0].padding_idx = 0


CASES.of_modes(
    "forward_backward_optimizer",
    "A kernel of each phase computes in bfloat16: softmax, the derivative of layer norm, Adam's quotient.",
    models=("transformer",),
    modes=(
        "cpu,kernel._softmax=bf16,kernel.native_layer_norm_backward=bf16,kernel.addcdiv=bf16",
        "compile,kernel._softmax=bf16,kernel.native_layer_norm_backward=bf16,kernel.addcdiv=bf16",
        "lazy,kernel._softmax=bf16,kernel.native_layer_norm_backward=bf16,kernel.addcdiv=bf16",
    ),
    culprit=(
        {"phase": "forward", "op": "_softmax"},
        {"phase": "backward", "op": "native_layer_norm_backward"},
        {"phase": "optimizer", "op": "addcdiv_"},
    ),
)


CASES.of_modes(
    "gates_and_loss",
    "The derivative of the sigmoid and that of the loss are computed in bfloat16.",
    models=("gru",),
    modes=(
        "cpu,kernel.sigmoid_backward=bf16,kernel._log_softmax_backward_data=bf16",
        "compile,kernel.sigmoid_backward=bf16,kernel._log_softmax_backward_data=bf16",
        "lazy,kernel.sigmoid_backward=bf16,kernel._log_softmax_backward_data=bf16",
    ),
    culprit=(
        {"phase": "backward", "op": "sigmoid_backward"},
        {"phase": "backward", "op": "_log_softmax_backward_data"},
    ),
)


@CASES.planted(
    models=("unet",),
    modes=("cpu,kernel.bmm=bf16,kernel.addcdiv=bf16", "compile,kernel.bmm=bf16,kernel.addcdiv=bf16"),
    culprit=(
        {"phase": "forward", "module": "block2.norm"},
        {"module": "gate", "op": "bmm"},
        {"phase": "optimizer", "op": "addcdiv_"},
    ),
)
def groups_einsum_and_quotient(training: Training) -> None:
    """Group norm takes other groups, einsum's products and Adam's quotient are in bfloat16."""
    modules(training, nn.GroupNorm)[1].num_groups = 4


@CASES.planted(
    models=("transformer",),
    modes=("cpu", "compile", "lazy"),
    culprit=({"phase": "forward", "op": "native_layer_norm"}, {"phase": "optimizer"}),
)
def norm_eps_and_clip(training: Training) -> None:
    """A layer norm has another eps, and gradients are clipped to another norm."""
    modules(training, nn.LayerNorm)[0].eps = 1e-3
    training.clip = 0.9


CASES.of_modes(
    "norm_gelu_and_moments",
    "Layer norm cancels in one pass, the derivative of GELU and Adam's second moments are in bfloat16.",
    models=("autoencoder",),
    modes=("cpu,kernel.native_layer_norm=one_pass,kernel.gelu_backward=bf16,kernel._foreach_addcmul=bf16",),
    culprit=(
        {"phase": "forward", "module": "scale", "op": "native_layer_norm"},
        {"phase": "backward", "op": "gelu_backward"},
        {"phase": "optimizer", "op": "_foreach_addcmul_"},
    ),
)


@CASES.planted(
    models=("gru",),
    modes=("cpu", "lazy"),
    culprit=({"phase": "forward", "op": "native_layer_norm"}, {"phase": "backward"}, {"phase": "optimizer"}),
)
def norm_gradient_and_decay(training: Training) -> None:
    """A GRU's layer norm has another eps, a weight's gradient counts twice, and the weight decay is missing."""
    modules(training, nn.LayerNorm)[0].eps = 1e-3
    next(p for p in training.model.parameters() if p.dim() == 2).register_hook(lambda gradient: 2 * gradient)
    training.optimizer = AdamW(training.model.parameters(), **training.optimizer.defaults)


class AdamW(optimizers.AdamW):
    def decay(self, p: Tensor, group: dict[str, Any]) -> None:
        pass


@CASES.planted(
    models=("cnn",),
    modes=("cpu,kernel.addmm=tf32",),
    culprit=(
        {"phase": "forward", "op": "native_batch_norm"},
        {"phase": "backward", "op": "threshold_backward"},
        {"phase": "forward", "op": "addmm"},
    ),
)
def norm_relu_and_product(training: Training) -> None:
    """A batch norm has TensorFlow's eps, ReLU's derivative passes everything, and the last product is in TF32."""
    modules(training, nn.BatchNorm2d)[1].eps = 1e-3
    KERNELS.impl("threshold_backward", threshold_backward, "CPU")


def threshold_backward(grad: Tensor, output: Tensor, threshold: float) -> Tensor:
    return grad * (output >= threshold)


@CASES.planted(
    models=("unet",),
    modes=("cpu,kernel.silu_backward=bf16", "compile,kernel.silu_backward=bf16", "lazy,kernel.silu_backward=bf16"),
    culprit=({"phase": "backward", "op": "silu_backward"}, {"phase": "optimizer"}),
)
def silu_and_clip(training: Training) -> None:
    """The derivative of SiLU is in bfloat16, and gradients are clipped to another norm."""
    assert training.clip is not None
    training.clip *= 0.9


CASES.of_modes(
    "tanh_and_its_derivative",
    "tanh and its derivative are computed in bfloat16, in each way of executing them.",
    models=("tanh_sam", "gru"),
    modes=(
        "cpu,kernel.tanh=bf16,kernel.tanh_backward=bf16",
        "compile,kernel.tanh=bf16,kernel.tanh_backward=bf16",
        "lazy,kernel.tanh=bf16,kernel.tanh_backward=bf16",
    ),
    culprit=({"phase": "forward", "op": "tanh"}, {"phase": "backward", "op": "tanh_backward"}),
)
