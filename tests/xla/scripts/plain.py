"""A training that asks for CUDA and knows nothing of torch_xla; it prints how many graphs were compiled, where any were."""

import sys

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
batches = [(torch.randn(32, 8), torch.randn(32, 1)) for _ in range(5)]
for x, y in batches:
    loss = torch.nn.functional.mse_loss(model(x.to("cuda")), y.to(0))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
metrics = sys.modules.get("torch_xla.debug.metrics")
names = () if metrics is None else ("CompileTime", "EagerOpCompileTime")
print(loss.device.type, sum((metrics.metric_data(name) or [0])[0] for name in names))
