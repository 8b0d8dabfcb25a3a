"""A training whose loss spikes, or is NaN, at step 40."""

import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--fault", choices=("spike", "nan"))
options = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(options.steps):
    x = torch.rand(32, 8)
    y = x.sum(1, keepdim=True)
    error = model(x) - y
    if step == 40 and options.fault == "spike":
        error = 50 * error
    if step == 40 and options.fault == "nan":
        error = (error - y).log()
    loss = error.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("the last loss is", loss.item())
