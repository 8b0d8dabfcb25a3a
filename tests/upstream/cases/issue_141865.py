"""pytorch#141865: a compiled linear layer accepts a half-precision input that eager mode refuses."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(1, 1)).eval()
x = torch.randn(1, 1, dtype=torch.float16)
print(torch.compile(model)(x))
print(model(x))
