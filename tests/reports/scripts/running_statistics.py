"""A classifier of eight by eight images with a batch norm; FAULT=1 has it forget its running statistics."""

import os

import torch
from torch import nn

torch.manual_seed(0)
images, labels = torch.randn(64, 1, 8, 8), torch.randint(4, (64,))
momentum = 0.0 if os.environ.get("FAULT") else 0.1


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 6, 3)
        self.norm = nn.BatchNorm2d(6, momentum=momentum)
        self.head = nn.Linear(6 * 36, 4)

    def forward(self, x):
        return self.head(self.norm(self.convolution(x)).relu().flatten(1))


model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(8):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.6f}")
