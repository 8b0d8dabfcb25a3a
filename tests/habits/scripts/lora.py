"""LoRA adapters by hand: a frozen layer is replaced by one with a trainable low-rank part.

Where: fine-tuning of language models. Adapters and the layers that they adapt are recorded under their names in the
model at its first call.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class LoRALinear(nn.Module):
    def __init__(self, base, rank=2, alpha=4.0):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(rank, base.in_features) * 0.02)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scaling = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 4)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


torch.manual_seed(0)
model = Net()
for name, layer in list(model.named_children()):
    setattr(model, name, LoRALinear(layer))
model.to(device)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.02)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
