"""A progress bar with carriage returns on stderr, results on stdout, some without a newline.

Where: tqdm, and code that imitates it. Both streams pass through byte for byte, and are kept with the run.
"""

import sys

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


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 5
print("épochs 1 →", end="")
for step in range(total):
    x, y = torch.randn(16, 8).to(device), torch.randint(0, 4, (16,)).to(device)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    done = (step + 1) * 20 // total
    bar = "█" * done + " " * (20 - done)
    sys.stderr.write(f"\r{100 * (step + 1) // total:3d}%|{bar}| {step + 1}/{total}")
    sys.stderr.flush()
    print(f" loss {loss.item()!r}", end="", flush=True)
sys.stderr.write("\n")
sys.stdout.buffer.write(b"\x00\xff raw bytes, and no newline")
