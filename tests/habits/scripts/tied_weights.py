"""The output layer shares its weight with the embedding.

Where: language models. A tensor with two names is recorded once, under the first.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class LanguageModel(nn.Module):
    def __init__(self, words=20, width=12):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.hidden = nn.Linear(width, width)
        self.output = nn.Linear(width, words, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, words):
        return self.output(torch.tanh(self.hidden(self.embedding(words))))


torch.manual_seed(0)
model = LanguageModel().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
text = torch.randint(0, 20, (4, 8, 7))
for batch in text:
    batch = batch.to(device)
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, 20), batch[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
