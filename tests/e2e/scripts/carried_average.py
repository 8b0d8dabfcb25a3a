"""A training with averaged weights, which nothing reads before the end. Before step 3, they may be set anew."""

import os

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

fault = os.environ.get("FAULT")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    if step == 3 and fault:
        weights = model if fault == "anew" else average.module
        average.module.load_state_dict(weights.state_dict())
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    average.update_parameters(model)
