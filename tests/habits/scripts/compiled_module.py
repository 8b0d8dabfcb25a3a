"""The script compiles its model: `model = torch.compile(model)`.

Where: most training code since PyTorch 2. A mode that compiles compiles it with its own backend; in the other modes the
call returns the model itself. The names of the parameters have no `_orig_mod.` in any mode.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.norm = nn.LayerNorm(16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(F.gelu(self.norm(self.fc1(x))))


torch.manual_seed(0)
model = torch.compile(Net().to(device))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
