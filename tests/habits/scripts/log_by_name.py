"""The script declares its loss: `numdrift.log`.

Where: the tensor whose `backward()` is called is not the number of interest, as with a loss that is scaled by a
constant. This is one of the two scripts here that import numdrift; in plain Python the call does nothing.
"""

import torch
import torch.nn.functional as F
from torch import nn

import numdrift

device = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    logits = model(x.to(device))
    loss = F.cross_entropy(logits, y.to(device))
    numdrift.log(loss=loss, largest=logits.max())
    optimizer.zero_grad()
    (1000 * loss).backward()
    optimizer.step()
    print("loss", loss.item())
