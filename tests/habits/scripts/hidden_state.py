"""A recurrent network carries its hidden state from batch to batch, detached.

Where: language models with truncated backpropagation. The state is an argument that was computed from parameters,
so it does not count as a batch.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Recurrent(nn.Module):
    def __init__(self, words=12, width=8):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.cell = nn.GRUCell(width, width)
        self.output = nn.Linear(width, words)

    def forward(self, text, hidden):
        logits = []
        for letter in text.unbind(1):
            hidden = self.cell(self.embedding(letter), hidden)
            logits.append(self.output(hidden))
        return torch.stack(logits, 1), hidden


torch.manual_seed(0)
model = Recurrent().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
text = torch.randint(0, 12, (6, 17))
hidden = torch.zeros(6, 8).to(device)
for start in range(0, 16, 4):
    x, y = text[:, start : start + 4].to(device), text[:, start + 1 : start + 5].to(device)
    hidden = hidden.detach()
    logits, hidden = model(x, hidden)
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    print("loss", loss.item())
