"""Small trainings of many kinds, each of which goes one step at a time and shows its values to a watcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from numdrift.harness.tape.large_values import LargeValues
from numdrift.harness.tape.recording.tape_recorder import TapeRecorder
from numdrift.harness.tape.tape import Tape


class Watcher(Protocol):
    def __call__(self, name: str, tensor: Tensor) -> None: ...


def nobody(name: str, tensor: Tensor) -> None:
    """Watches nothing."""


class Training:
    """A model, an optimizer and what a step of them is."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model = model
        self.optimizer = optimizer
        self.saw: Watcher = nobody
        self.losses = 0
        self.backwards = 0

    def backward(self, loss: Tensor) -> None:
        self.saw(f"loss {self.losses}", loss)
        self.losses += 1
        loss.backward()
        for name, parameter in self.model.named_parameters():
            if parameter.grad is not None:
                self.saw(f"gradient {self.backwards} {name}", parameter.grad)
        self.backwards += 1

    def work(self) -> None:
        """Everything from the end of one optimizer step to that of the next."""
        raise NotImplementedError

    def step(self, saw: Watcher = nobody) -> None:
        self.saw, self.losses, self.backwards = saw, 0, 0
        self.work()
        for name, tensor in self.state():
            saw(name, tensor)

    def state(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self.model.named_parameters():
            yield f"parameter {name}", parameter
        for name, buffer in self.model.named_buffers():
            yield f"buffer {name}", buffer
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    yield f"state {name}.{key}", value

    def values(self) -> dict[str, Tensor]:
        """Take a step; gives copies of everything that it showed."""
        seen: dict[str, Tensor] = {}
        self.step(lambda name, tensor: seen.update({name: tensor.detach().clone()}))
        return seen

    def taped(self, number: int = 0) -> Tape:
        """Take a step and record it."""
        with recorded(number) as recorder:
            self.step(recorder.watch)
        return recorder.tape()


@contextmanager
def recorded(number: int = 0, *, modules: bool = True, large: LargeValues | None = None) -> Iterator[TapeRecorder]:
    recorder = TapeRecorder(number, __file__, modules=modules, large=large)
    recorder.start()
    try:
        yield recorder
    finally:
        recorder.stop()


class Mlp(Training):
    """Batch normalization, dropout, AdamW."""

    def __init__(self, dtype: torch.dtype = torch.float32, **kind: Any) -> None:
        model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Dropout(0.25), nn.Linear(12, 4))
        super().__init__(model.to(dtype), torch.optim.AdamW(model.parameters(), lr=1e-2, **kind))
        self.x, self.y = torch.randn(16, 6, dtype=dtype), torch.randint(0, 4, (16,))

    def work(self) -> None:
        self.optimizer.zero_grad()
        self.backward(F.cross_entropy(self.model(self.x), self.y))
        self.optimizer.step()


class Plain(Mlp):
    """The same without dropout and batch normalization, by momentum: a smooth function of everything."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype)
        self.model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 4)).to(dtype)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joint, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:  # [B, S, D]
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.joint(self.norm1(x)).chunk(3, -1))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(heads)
        out: Tensor = x + self.feed(self.norm2(x))
        return out


class Transformer(nn.Module):
    """Causal, embedding and output weights tied."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        logits: Tensor = self.head(h)
        return logits


class Language(Training):
    """Gradient clipping, and data that is made in the step."""

    def __init__(self) -> None:
        model = Transformer()
        super().__init__(model, torch.optim.AdamW(model.parameters(), lr=1e-2))

    def work(self) -> None:
        self.optimizer.zero_grad()
        x = torch.randint(0, 11, (3, 7))
        self.backward(F.cross_entropy(self.model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()))
        nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.optimizer.step()


class Sam(Plain):
    """Two passes, with the parameters' memory exchanged between them."""

    def work(self) -> None:
        self.backward(F.cross_entropy(self.model(self.x), self.y))
        kept = {}
        with torch.no_grad():
            gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
            norm = torch.stack([g.norm() for g in gradients]).norm()
            for p in self.model.parameters():
                kept[p] = p.data
                p.data = p + 0.05 * p.grad / norm  # type: ignore[operator]
        self.optimizer.zero_grad()
        self.backward(F.cross_entropy(self.model(self.x), self.y))
        for p, data in kept.items():
            p.data = data
        self.optimizer.step()
        self.optimizer.zero_grad()


class Images(Training):
    """Convolutions in channels-last, max and average pooling, batch normalization, in-place activations."""

    def __init__(self) -> None:
        first, second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3)
        for layer in (first, second):
            layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
        model = nn.Sequential(
            *(first, nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
            *(second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)),
        )
        super().__init__(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True))
        self.x = torch.randn(5, 2, 8, 8).to(memory_format=torch.channels_last)
        self.y = torch.tensor([0, 1, 2, 1, 0])

    def work(self) -> None:
        self.optimizer.zero_grad()
        self.backward(F.cross_entropy(self.model(self.x), self.y))
        self.optimizer.step()


class Sequences(Training):
    """A recurrent network whose hidden state is carried from step to step."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU]) -> None:
        model = nn.ModuleDict({"net": kind(3, 5, batch_first=True), "head": nn.Linear(5, 1)})
        super().__init__(model, torch.optim.Adam(model.parameters(), lr=1e-2))
        self.x, self.y = torch.randn(4, 6, 3), torch.randn(4, 1)
        self.hidden: Tensor | tuple[Tensor, ...] | None = None

    def work(self) -> None:
        self.optimizer.zero_grad()
        assert isinstance(self.model, nn.ModuleDict)
        out, hidden = self.model["net"](self.x, self.hidden)
        self.hidden = hidden.detach() if isinstance(hidden, Tensor) else tuple(one.detach() for one in hidden)
        self.backward(F.mse_loss(self.model["head"](out[:, -1]), self.y))
        self.optimizer.step()


class Autocast(Mlp):
    """The forward in bfloat16."""

    def work(self) -> None:
        self.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(self.model(self.x), self.y)
        self.backward(loss)
        self.optimizer.step()


class Accumulated(Mlp):
    """Two micro-batches a step."""

    def work(self) -> None:
        self.optimizer.zero_grad(set_to_none=False)
        for part in range(2):
            self.backward(F.cross_entropy(self.model(self.x[part::2]), self.y[part::2]) / 2)
        self.optimizer.step()


class Averaged(Plain):
    """A moving average of the parameters, updated between two steps."""

    def __init__(self) -> None:
        super().__init__()
        self.average = [p.detach().clone() for p in self.model.parameters()]

    def work(self) -> None:
        with torch.no_grad():
            for mean, p in zip(self.average, self.model.parameters(), strict=True):
                mean.mul_(0.9).add_(p, alpha=0.1)
        super().work()

    def state(self) -> Iterator[tuple[str, Tensor]]:
        yield from super().state()
        yield from ((f"average {number}", mean) for number, mean in enumerate(self.average))


class InPlace(Plain):
    """Writing into views, index assignment, and a number read in the middle of the step."""

    def work(self) -> None:
        self.optimizer.zero_grad()
        hidden = self.model[0](self.x)  # type: ignore[index]
        hidden[:, 3:6] *= 2
        hidden[::2, 0] = hidden[::2, 1].exp()
        hidden.view(4, 4, 12)[1].t().add_(hidden.mean().item())
        mask = torch.zeros(16, 12)
        mask[torch.arange(16) % 3 == 0] = 1.0
        self.backward(((hidden * mask).sigmoid_().cumsum(1) ** 2).mean() + self.model(self.x).square().mean())
        self.optimizer.step()


class Loaded(Plain):
    """Batches that the processes of a data loader send."""

    def work(self) -> None:
        self.optimizer.zero_grad()
        pairs = torch.utils.data.TensorDataset(self.x, self.y)
        for x, y in torch.utils.data.DataLoader(pairs, batch_size=8, shuffle=True, num_workers=1):
            self.backward(F.cross_entropy(self.model(x), y))
        self.optimizer.step()


class Scaled(Plain):
    """Gradients scaled against underflow."""

    def __init__(self) -> None:
        super().__init__()
        self.scaler = torch.amp.GradScaler("cpu")

    def work(self) -> None:
        self.optimizer.zero_grad()
        self.backward(self.scaler.scale(F.cross_entropy(self.model(self.x), self.y)))
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        found: Tensor = gradient * 3 * x * x
        return found


class Recomputed(Plain):
    """A forward that the backward repeats, with its dropout; an autograd function; a penalty on a gradient."""

    def work(self) -> None:
        self.optimizer.zero_grad()
        x = self.x.clone().requires_grad_()
        first, middle, last = self.model.children()
        hidden = checkpoint(lambda x: F.dropout(middle(first(x)), 0.3), x, use_reentrant=False)
        loss = F.cross_entropy(Cube.apply(last(hidden)), self.y)  # type: ignore[no-untyped-call]
        (gradient,) = torch.autograd.grad(F.cross_entropy(self.model(x), self.y), x, create_graph=True)
        self.backward(loss + gradient.square().sum())
        self.optimizer.step()


class Embeddings(Training):
    """A bag of words, and a table with a padding row."""

    def __init__(self) -> None:
        model = nn.ModuleDict({"bag": nn.EmbeddingBag(9, 4, mode="mean"), "table": nn.Embedding(9, 4, padding_idx=0)})
        super().__init__(model, torch.optim.Adagrad(model.parameters(), lr=0.1))
        self.words = torch.randint(0, 9, (5, 3))

    def work(self) -> None:
        self.optimizer.zero_grad()
        assert isinstance(self.model, nn.ModuleDict)
        made = self.model["bag"](self.words) * self.model["table"](self.words).sum(1)
        self.backward(made.square().sum())
        self.optimizer.step()


TRAININGS: dict[str, Callable[[], Training]] = {
    "mlp": Mlp,
    "foreach": lambda: Mlp(foreach=True),
    "fused": lambda: Mlp(fused=True),
    "transformer": Language,
    "sam": Sam,
    "images": Images,
    "lstm": lambda: Sequences(nn.LSTM),
    "gru": lambda: Sequences(nn.GRU),
    "autocast": Autocast,
    "accumulated": Accumulated,
    "averaged": Averaged,
    "in-place": InPlace,
    "loaded": Loaded,
    "scaled": Scaled,
    "recomputed": Recomputed,
    "embeddings": Embeddings,
}


def started(name: str, steps: int = 1) -> Training:
    """A training from seed 0 that has taken some steps."""
    torch.manual_seed(0)
    training = TRAININGS[name]()
    for _ in range(steps):
        training.step()
    return training
