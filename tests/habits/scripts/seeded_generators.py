"""The script has generators of its own: for the loader, for the noise.

Where: code whose data order is independent of its initialization. Their draws are the script's own; numdrift seeds
only what the script leaves unseeded, here torch's global generator.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
order = torch.Generator().manual_seed(1)
noise = torch.Generator().manual_seed(2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


# A product of the indices, and no draw: the weights are the same in every process.
model = Net()
with torch.no_grad():
    for parameter in model.parameters():
        parameter.copy_(torch.sin(torch.arange(parameter.numel(), dtype=torch.float32)).view_as(parameter) / 3)
model.to(device)
dataset = TensorDataset(torch.randn(64, 8, generator=noise), torch.arange(64).remainder(4))
loader = DataLoader(dataset, batch_size=16, shuffle=True, generator=order)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x = x + 0.1 * torch.randn(x.shape, generator=noise)
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
