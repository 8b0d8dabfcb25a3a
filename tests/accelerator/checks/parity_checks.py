"""The device's results against the host's, bit for bit: many ops, on inputs of many shapes and strides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

Op = Callable[..., Any]
Tensors = tuple[torch.Tensor, ...]

UNARY: dict[str, Op] = {
    **{name: getattr(torch, name) for name in (
        "abs", "neg", "exp", "sin", "cos", "tanh", "sigmoid", "sqrt", "rsqrt", "floor", "sign", "erf", "log1p", "square",
        "reciprocal", "relu", "isnan", "cumsum_", "triu", "tril", "flip_", "argmax", "argsort", "sort", "logsumexp_",
        "var", "clone", "ravel", "nonzero", "count_nonzero", "unique", "zeros_like", "nan_to_num", "prod", "amax", "std",
    ) if not name.endswith("_")},
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "pow": lambda x: x**3,
    "to bfloat16": lambda x: x.to(torch.bfloat16),
    "to int64": lambda x: x.to(torch.int64),
    "add a number": lambda x: x + 1.5,
    "divide a number": lambda x: 2 / x,
    "cumsum": lambda x: x.cumsum(-1),
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(0),
    "gelu": F.gelu,
    "elu": F.elu,
    "silu": F.silu,
    "softplus": F.softplus,
    "leaky_relu": F.leaky_relu,
    "transpose": lambda x: x.transpose(0, -1) + 1,
    "flatten": lambda x: x.flatten().contiguous(),
    "select": lambda x: x[..., -1:] * 2,
    "masked": lambda x: x.masked_fill(x > 0, -1),
    "where": lambda x: torch.where(x > 0, x, 0),
    "chosen": lambda x: x[x > 0],
    "pad": lambda x: F.pad(x, (1, 2)) if x.dim() else x.clone(),
    "flip": lambda x: x.flip(0) if x.dim() else x.clone(),
    "max": lambda x: x.max() if x.numel() else x.clone(),
    "cummax": lambda x: x.cummax(0),
    "chunk": lambda x: [part * 2 for part in x.chunk(2, -1)] if x.dim() else x.clone(),
    "split": lambda x: torch.cat([part.clone() for part in x.split(2, 0)]) if x.dim() else x.clone(),
    "roll": lambda x: x.roll(1, 0) if x.dim() else x.clone(),
    "unfold": lambda x: x.unfold(-1, 1, 1) * 1 if x.dim() else x.clone(),
    "norm": lambda x: torch.linalg.vector_norm(x, 2, -1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]) if x.dim() else x.clone(),
    "as complex": lambda x: torch.view_as_complex(torch.stack([x, x], -1)).abs(),
}  # fmt: skip
BINARY: dict[str, Op] = {
    **{
        name: getattr(torch, name)
        for name in ("add", "sub", "mul", "div", "maximum", "atan2", "fmod", "eq", "lt", "hypot")
    },
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5),
    "stack": lambda x, y: torch.stack(torch.broadcast_tensors(x, y)),
    "mse without sum": lambda x, y: F.mse_loss(x + 0 * y, y + 0 * x, reduction="none"),
    "matmul of whole numbers": lambda x, y: x.flatten().round() @ x.flatten().round() if x.numel() < 100 else x,
}
WRITING: dict[str, Op] = {
    "add_": lambda x, y: x.add_(y, alpha=2),
    "mul_": lambda x, y: x.mul_(y),
    "copy_": lambda x, y: x.copy_(y),
    "zero_": lambda x, y: x.zero_(),
    "fill_": lambda x, y: x.fill_(3),
    "clamp_": lambda x, y: x.clamp_(min=0),
    "sub_ a number": lambda x, y: x.sub_(1),
    "addcmul_": lambda x, y: x.addcmul_(y, y, value=0.1),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0, 9),
    "tanh_": lambda x, y: x.tanh_(),
    "out": lambda x, y: torch.mul(y, 2, out=x),
    "index_fill_": lambda x, y: x.index_fill_(0, torch.arange(min(1, len(x)), device=x.device), 5) if x.dim() else x,
    "_foreach_add_": lambda x, y: torch._foreach_add_([x, x], [y, y]),
}


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def inputs() -> Iterator[torch.Tensor]:
    """Tensors of all kinds of strides."""
    yield numbers(3, 4)
    yield numbers(4, 3).t()
    yield numbers(6, 8)[::2, 1::2]
    yield numbers(2, 3, 4).permute(2, 0, 1)
    yield numbers(3, 1).expand(3, 4)
    yield numbers(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    yield numbers(40, 70)
    yield numbers(3, 0)
    yield numbers(1)
    yield torch.tensor(0.7)


def on_device(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor on the device, with its strides and its storage."""
    base = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage()).to("standin")
    return base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def result(op: Op, *tensors: torch.Tensor) -> list[Any]:
    """Return the bits of what an op returns, or the kind of error that it raises."""
    try:
        returned = op(*tensors)
    except (RuntimeError, IndexError) as error:
        return [type(error).__name__]
    flat = [returned] if isinstance(returned, torch.Tensor) else list(returned)
    return [(tensor.dtype, tuple(tensor.shape), bits(tensor)) for tensor in flat]


def bits(tensor: torch.Tensor) -> bytes:
    whole = tensor.detach().cpu().resolve_conj().contiguous()
    return whole.view(-1).view(torch.uint8).numpy().tobytes() if whole.numel() else b""


def require_same(kind: str, op: Op, *tensors: torch.Tensor) -> None:
    host, device = result(op, *tensors), result(op, *map(on_device, tensors))
    assert host == device, (kind, [(tensor.shape, tensor.stride()) for tensor in tensors])


def check_ops_of_one_tensor(standin: Any) -> None:
    for kind, op in UNARY.items():
        for tensor in inputs():
            require_same(kind, op, tensor)


def check_ops_of_two_tensors(standin: Any) -> None:
    for kind, op in BINARY.items():
        for tensor in inputs():
            require_same(kind, op, tensor, tensor.flip(0) if tensor.dim() else tensor)
            require_same(kind, op, tensor, torch.tensor(0.3))
        require_same(kind, op, numbers(3, 1), numbers(1, 4))
        require_same(kind, op, numbers(2, 3, 4), numbers(4))
        require_same(kind, op, numbers(3, 4), (4 * numbers(3, 4)).to(torch.float64))


def check_writes_into_views(standin: Any) -> None:
    views: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda base: base,
        lambda base: base.t(),
        lambda base: base[1:, ::2],
        lambda base: base[2],
        lambda base: base[:, 3:4],
        lambda base: base.diagonal(),
        lambda base: base[0, 0],
        lambda base: base[:0],
    ]
    for kind, op in WRITING.items():
        for place, view in enumerate(views):
            host, device = numbers(6, 6), numbers(6, 6).to("standin")
            for base in (host, device):
                target = view(base)
                result(op, target, torch.full_like(target, 0.25) * view(numbers(6, 6).to(base.device)))
            assert bits(host) == bits(device), (kind, place)


def check_indices(standin: Any) -> None:
    values, index = numbers(5, 4), torch.tensor([[0, 4], [2, 2]])
    for kind, op in {
        "gather": lambda x, i: x.gather(0, i),
        "index_select": lambda x, i: x.index_select(0, i.flatten()),
        "take": lambda x, i: x.take(i),
        "getitem": lambda x, i: x[i],
        "getitem of two": lambda x, i: x[i, i.clamp(max=3)],
        "embedding": lambda x, i: F.embedding(i, x),
        "one_hot": lambda x, i: F.one_hot(i),
        "scatter": lambda x, i: x.scatter(0, i, 7.0),
        "scatter_add": lambda x, i: x.scatter_add(0, i, x),
        "index_add": lambda x, i: x.index_add(0, i[0], x[:2]),
        "index_copy": lambda x, i: x.index_copy(0, i[0], x[:2]),
        "index_put": lambda x, i: x.clone().index_put_((i[0],), x[:2], accumulate=True),
        "bincount": lambda x, i: torch.bincount(i.flatten()),
        "searchsorted": lambda x, i: torch.searchsorted(x.flatten().sort()[0], x),
    }.items():
        require_same(kind, op, values, index)


def check_layers(standin: Any) -> None:
    image = numbers(2, 3, 8, 8)
    for kind, op in {
        "max_pool2d": lambda x: F.max_pool2d(x, 2),
        "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 1),
        "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3),
        "interpolate": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        "batch_norm": lambda x: F.batch_norm(x, x[0, :, 0, 0] * 0, x[0, :, 0, 0] * 0 + 1, training=True),
        "batch_norm in bfloat16": lambda x: F.batch_norm(x.bfloat16(), None, None, training=True),
        "batch_norm of statistics": lambda x: F.batch_norm(x, x[0, :, 0, 0] * 0, x[0, :, 0, 0] * 0 + 1),
        "group_norm": lambda x: F.group_norm(x, 3),
        "layer_norm in bfloat16": lambda x: F.layer_norm(x.bfloat16(), (8, 8)),
        "conv2d": lambda x: F.conv2d(x, x[:, :, :3, :3], padding=1),
        "conv_transpose2d": lambda x: F.conv_transpose2d(x, x[0][:, None, :3, :3], stride=2),
        "pixel_shuffle": lambda x: F.pixel_unshuffle(x, 2),
        "nll_loss": lambda x: F.nll_loss(x[..., 0, 0], torch.tensor([1, 2], device=x.device), reduction="none"),
        "fft": lambda x: torch.fft.rfft(x),
        "einsum of whole numbers": lambda x: torch.einsum("nchw,nchw->nc", x.round(), x.round()),
    }.items():
        require_same(kind, op, image)
