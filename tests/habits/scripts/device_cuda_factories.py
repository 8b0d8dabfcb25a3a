"""Tensors are created with `device="cuda"` in the middle of forward.

Where: position embeddings, masks and noise in transformer code. numdrift sends every factory call to the mode's device,
also those inside a module's forward, and a compiled graph is traced with that device.
"""

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda"


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.positions = nn.Embedding(6, 16)
        self.output = nn.Linear(16, 5)

    def forward(self, words):
        position = torch.arange(words.shape[1], device="cuda")
        mask = torch.ones(words.shape[1], words.shape[1], device=torch.device("cuda", 0)).tril()
        hidden = self.words(words) + self.positions(position)
        weights = (mask / mask.sum(1, keepdim=True)).to(hidden.dtype)
        return self.output(torch.tanh(weights @ hidden))


torch.manual_seed(1)
model = Tagger().to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
words = torch.randint(0, 20, (4, 8, 6)).to(DEVICE)
tags = torch.randint(0, 5, (4, 8, 6)).to("cuda:0")

for step in range(4):
    logits = model(words[step])
    loss = F.cross_entropy(logits.flatten(0, 1), tags[step].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item()!r}")
