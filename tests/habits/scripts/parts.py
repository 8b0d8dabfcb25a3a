"""There is no outermost module: encoder and decoder are called one after the other.

Where: translation tutorials, and code that keeps its parts in an nn.ModuleList or a dictionary. Each part that is
called is a model of its own, compiled by itself and named by the variable that holds it.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.gate = nn.Linear(8, 8)

    def forward(self, words):
        embedded = self.embedding(words).mean(1)
        return torch.tanh(self.gate(embedded))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.output = nn.Linear(8, 12)

    def forward(self, hidden):
        return self.output(F.relu(hidden))


torch.manual_seed(0)
encoder, decoder = Encoder().to(device), Decoder().to(device)
layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2)).to(device)
everything = [*encoder.parameters(), *layers.parameters(), *decoder.parameters()]
optimizer = torch.optim.Adam(everything, lr=0.01)
words, targets = torch.randint(0, 12, (4, 16, 5)), torch.randint(0, 12, (4, 16))
for x, y in zip(words, targets, strict=True):
    hidden = encoder(x.to(device))
    for layer in layers:
        hidden = hidden + torch.tanh(layer(hidden))
    loss = F.cross_entropy(decoder(hidden), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
