"""A training with ops that torch_xla takes apart, returns several values from, lacks, or is made to execute; it prints its
losses, and how many graphs were compiled, where any were."""

import sys

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(8, 16),
    torch.nn.LayerNorm(16),
    torch.nn.BatchNorm1d(16),
    torch.nn.Dropout(0.1),
    torch.nn.Linear(16, 1),
).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
batches = [(torch.randn(32, 8), torch.randn(32, 1)) for _ in range(3)]
for x, y in batches:
    out = model(x.cuda())
    loss = torch.nn.functional.mse_loss(out, y.cuda())
    spectrum = torch.fft.rfft(out.detach() * 2)  # torch_xla has no FFT
    print(f"{loss.item():.6f}")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
metrics = sys.modules.get("torch_xla.debug.metrics")
print(0 if metrics is None else (metrics.metric_data("CompileTime") or [0])[0])
