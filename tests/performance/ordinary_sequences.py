"""The models of `ordinary_models` whose inputs are sequences."""

import math
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


def planted(x: Tensor) -> Tensor:
    return x * 1.02 if os.environ.get("FAULT") == "scale" else x


# gpt2: 124 million parameters, 4 x 256 words; gpt2-medium: 354 million parameters, 2 x 64 words; bert: a tiny one, 4.4
# million parameters


class Block(nn.Module):
    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widened, self.narrowed = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        batch, words, width = x.shape
        split = self.mixed(self.norm1(x)).view(batch, words, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.dropout(self.out(attended.transpose(1, 2).reshape(batch, words, width)))
        return x + self.dropout(self.narrowed(F.gelu(self.widened(self.norm2(x)))))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    def __init__(self, vocabulary: int, width: int, blocks: int, heads: int, words: int, *, causal: bool) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(vocabulary, width), nn.Embedding(words, width)
        nn.init.normal_(self.word.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(width, heads, causal=causal) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)

    def forward(self, words: Tensor) -> Tensor:  # [B, T] -> [B, T, vocabulary]
        x = self.word(words) + self.place(torch.arange(words.shape[1]))
        for number, block in enumerate(self.blocks):
            x = block(planted(x) if number == len(self.blocks) // 2 else x)
        return F.linear(self.norm(x), self.word.weight)


def gpt2() -> nn.Module:
    return Transformer(50257, 768, 12, 12, 256, causal=True)


def following(generator: torch.Generator) -> Batch:
    words = torch.randint(50257, (4, 257), generator=generator)
    return words[:, :-1], words[:, 1:]


def gpt2_medium() -> nn.Module:
    return Transformer(50257, 1024, 24, 16, 64, causal=True)


def short(generator: torch.Generator) -> Batch:
    words = torch.randint(50257, (2, 65), generator=generator)
    return words[:, :-1], words[:, 1:]


def bert() -> nn.Module:
    return Transformer(30522, 128, 2, 2, 64, causal=False)


def masked(generator: torch.Generator) -> Batch:
    words = torch.randint(5, 30522, (16, 64), generator=generator)
    return words.where(torch.rand(words.shape, generator=generator) > 0.15, 4), words


# transformer: an encoder and a decoder of torch's own layers, 15 million parameters, as a language model on 20 x 35 words


class LanguageModel(nn.Module):
    places: Tensor

    def __init__(self, vocabulary: int = 33278, width: int = 200) -> None:
        super().__init__()
        self.word = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(0.2)
        self.transformer = nn.Transformer(width, 2, 2, 2, width, dropout=0.2, batch_first=True)
        self.head = nn.Linear(width, vocabulary)
        waves = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width)) * torch.arange(35)[:, None]
        self.register_buffer("places", torch.stack((waves.sin(), waves.cos()), -1).flatten(1))
        self.register_buffer("later", nn.Transformer.generate_square_subsequent_mask(35))

    def forward(self, words: Tensor) -> Tensor:  # [B, 35] -> [B, 35, vocabulary]
        x = self.dropout(planted(self.word(words) * math.sqrt(self.word.embedding_dim)) + self.places)
        return self.head(self.transformer(x, x, tgt_mask=self.later))  # type: ignore[no-any-return]


def next_words(generator: torch.Generator) -> Batch:
    words = torch.randint(33278, (20, 36), generator=generator)
    return words[:, :-1], words[:, 1:]


# informer: sparse attention that draws the keys it looks at, 2.8 million parameters, forecasts of 24 from 96 times.
# NumPy computes sizes in it, so dynamo compiles it in 19 graphs


class SparseAttention(nn.Module):
    """The queries that attend most attend to all keys; the others have the average of all values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, read: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q(x), self.k(read), self.v(read))
        )
        keys = min(5 * np.ceil(np.log(k.shape[2])).astype("int").item(), k.shape[2])
        queries = min(5 * np.ceil(np.log(q.shape[2])).astype("int").item(), q.shape[2])
        drawn = k[:, :, torch.randint(k.shape[2], (q.shape[2], keys))]  # [B, H, Q, keys, D]
        sampled = (q.unsqueeze(-2) @ drawn.transpose(-2, -1)).squeeze(-2)
        spread = sampled.max(-1).values - sampled.sum(-1) / k.shape[2]
        top = spread.topk(queries, sorted=False).indices[..., None].expand(-1, -1, -1, q.shape[3])
        weights = (q.gather(2, top) @ k.transpose(-2, -1) / math.sqrt(q.shape[3])).softmax(-1)
        attended = v.mean(-2, keepdim=True).expand(q.shape).scatter(2, top, weights @ v)
        return self.out(attended.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class InformerLayer(nn.Module):
    def __init__(self, width: int, *, reads: bool) -> None:
        super().__init__()
        self.own = SparseAttention(width, 8)
        self.other = SparseAttention(width, 8) if reads else None
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.widened, self.narrowed = nn.Conv1d(width, 4 * width, 1), nn.Conv1d(4 * width, width, 1)
        self.dropout = nn.Dropout(0.05)

    def forward(self, x: Tensor, read: Tensor | None = None) -> Tensor:
        x = self.norms[0](x + self.dropout(self.own(x, x)))
        if self.other is not None and read is not None:
            x = self.norms[1](x + self.dropout(self.other(x, read)))
        y = self.narrowed(self.dropout(F.gelu(self.widened(x.transpose(1, 2))))).transpose(1, 2)
        return self.norms[2](x + self.dropout(y))  # type: ignore[no-any-return]


class Informer(nn.Module):
    def __init__(self, values: int = 7, width: int = 256) -> None:
        super().__init__()
        self.read = nn.Conv1d(values, width, 3, padding=1, padding_mode="circular")
        self.wanted = nn.Conv1d(values, width, 3, padding=1, padding_mode="circular")
        self.encoder = nn.ModuleList(InformerLayer(width, reads=False) for _ in range(2))
        self.distilled = nn.Sequential(nn.Conv1d(width, width, 3, padding=1), nn.BatchNorm1d(width), nn.ELU())
        self.decoder = InformerLayer(width, reads=True)
        self.head = nn.Linear(width, values)

    def forward(self, seen: Tensor) -> Tensor:  # [B, 96, 7] -> [B, 24, 7]
        x = self.encoder[0](self.read(seen.transpose(1, 2)).transpose(1, 2))
        x = F.max_pool1d(self.distilled(planted(x).transpose(1, 2)), 3, 2, 1).transpose(1, 2)
        x = self.encoder[1](x)
        wanted = torch.cat((seen[:, 48:], seen.new_zeros(seen.shape[0], 24, seen.shape[2])), 1)
        return self.head(self.decoder(self.wanted(wanted.transpose(1, 2)).transpose(1, 2), x))[:, -24:]  # type: ignore[no-any-return]


def series(generator: torch.Generator) -> Batch:
    times = torch.randn(16, 120, 7, generator=generator).cumsum(1) / 10
    return times[:, :96], times[:, 96:]
