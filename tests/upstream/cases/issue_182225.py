"""pytorch#182225: compiled rotary embeddings in bfloat16 do not round between their products and their sum."""

import torch


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotary(query, key, cos, sin):
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return query * cos + rotate_half(query) * sin, key * cos + rotate_half(key) * sin


torch.manual_seed(123)
query = torch.randn(1, 2, 7, 16, dtype=torch.bfloat16)
key = torch.randn(1, 1, 7, 16, dtype=torch.bfloat16)
cos = torch.randn(1, 7, 16, dtype=torch.bfloat16)
sin = torch.randn(1, 7, 16, dtype=torch.bfloat16)
eager = rotary(query, key, cos, sin)
compiled = torch.compile(rotary, fullgraph=True, dynamic=True)(query, key, cos, sin)
print([(a - b).abs().max() for a, b in zip(eager, compiled, strict=True)])
