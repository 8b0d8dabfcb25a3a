"""The backbone is frozen, and the other layers have two learning rates.

Where: fine-tuning. Frozen parameters are recorded like the others, without a gradient. The settings of a group are
recorded under the names of its parameters.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(8, 16)
        self.neck = nn.Linear(16, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(F.relu(self.neck(F.relu(self.backbone(x)))))


torch.manual_seed(0)
model = Classifier().to(device)
for parameter in model.backbone.parameters():
    parameter.requires_grad = False
optimizer = torch.optim.AdamW(
    [
        {"params": model.neck.parameters(), "lr": 1e-3},
        {"params": [model.head.weight], "lr": 1e-2},
        {"params": [model.head.bias], "lr": 1e-2, "weight_decay": 0.0},
    ]
)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
