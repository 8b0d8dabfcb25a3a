"""`"cuda" if torch.cuda.is_available() else "cpu"`.

Where: every tutorial. Either choice of the script leads to the mode's device.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"


class NeuralNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.linear_relu_stack = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 10))

    def forward(self, x):
        return self.linear_relu_stack(self.flatten(x))


torch.manual_seed(0)
dataset = TensorDataset(torch.randn(64, 4, 4), torch.randint(0, 10, (64,)))
loader = DataLoader(dataset, batch_size=16, shuffle=True)
model = NeuralNetwork().to(device)
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

model.train()
for batch, (X, y) in enumerate(loader):
    X, y = X.to(device), y.to(device)
    loss = loss_fn(model(X), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"loss: {loss.item()!r}  [{(batch + 1) * len(X):>5d}/{len(dataset):>5d}]")
