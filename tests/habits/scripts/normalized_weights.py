"""Weights are normalized by a parametrization: `weight_norm` or `spectral_norm`.

Where: speech synthesis and older generative models; discriminators of GANs. The originals are trained; they are
recorded as `fc1.parametrizations.weight.original0`, as `state_dict()` names them. With `spectral_norm` each forward
in training mode takes a power iteration, whose vectors are buffers: they are recorded like the parameters, and a
second execution of the step starts from the same ones.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

parser = argparse.ArgumentParser()
parser.add_argument("--norm", choices=("weight", "spectral"), default="weight")
args = parser.parse_args()
device = "cuda" if torch.cuda.is_available() else "cpu"
normalized = weight_norm if args.norm == "weight" else spectral_norm


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = normalized(nn.Linear(8, 16))
        self.fc2 = normalized(nn.Linear(16, 4))

    def forward(self, x):
        return self.fc2(F.leaky_relu(self.fc1(x), 0.2))


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
