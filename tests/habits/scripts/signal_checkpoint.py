"""A signal makes the script save a checkpoint and exit.

Where: clusters that warn before they end a job (SIGUSR1, SIGTERM). The script keeps its own handlers; this one
sends the signals to itself, as a scheduler would.
"""

import os
import signal
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
stop = False


def save_and_leave(number, frame):
    global stop
    stop = True
    print("caught", signal.Signals(number).name)


signal.signal(signal.SIGUSR1, save_and_leave)
signal.signal(signal.SIGTERM, save_and_leave)


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
for step in range(100):
    x, y = torch.randn(16, 8).to(device), torch.randint(0, 4, (16,)).to(device)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
    if step in (1, 3):
        os.kill(os.getpid(), signal.SIGUSR1 if step == 1 else signal.SIGTERM)
    if stop and step >= 3:
        with tempfile.TemporaryFile() as file:
            torch.save(model.state_dict(), file)
        break
