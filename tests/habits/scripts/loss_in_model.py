"""The model's forward takes the labels and returns the loss, in an object with attributes.

Where: Hugging Face's models, detection models. The loss is compiled with the model, and found where `backward()` is
called.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(20, 12)
        self.classifier = nn.Linear(12, 3)

    def forward(self, input_ids=None, labels=None):
        logits = self.classifier(torch.tanh(self.embeddings(input_ids).mean(1)))
        return Output(loss=F.cross_entropy(logits, labels), logits=logits)


torch.manual_seed(0)
model = Classifier().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
ids, labels = torch.randint(0, 20, (4, 8, 5)), torch.randint(0, 3, (4, 8))
for input_ids, y in zip(ids, labels, strict=True):
    batch = {"input_ids": input_ids, "labels": y}
    outputs = model(**{name: tensor.to(device) for name, tensor in batch.items()})
    optimizer.zero_grad()
    outputs.loss.backward()
    optimizer.step()
    print("loss", outputs.loss.item())
