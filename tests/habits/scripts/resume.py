"""A checkpoint is saved, and a new model and optimizer continue from it.

Where: long trainings. The second model is another object with the same names. It is recorded as a model of its own
from its first call on, and the numbers of the steps continue.
"""

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


def train(checkpoint, batches):
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    for x, y in batches:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("loss", loss.item())
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)
    return model


torch.manual_seed(0)
batches = [(torch.randn(16, 8), torch.randint(0, 4, (16,))) for _ in range(6)]
with tempfile.TemporaryDirectory() as folder:
    checkpoint = Path(folder, "last.pt")
    first = train(checkpoint, batches[:3])
    second = train(checkpoint, batches[3:])
