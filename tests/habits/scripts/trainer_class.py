"""A class holds the model, the optimizer and the loop: `Trainer(...).fit()`.

Where: in-house frameworks. Model and optimizer are no global variables; model, loss and step are found where they
are called.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


class Trainer:
    def __init__(self, model, lr=0.1):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.optimizer = self.configure_optimizer(lr)
        self.history = []

    def configure_optimizer(self, lr):
        return torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9, nesterov=True)

    def training_step(self, batch):
        x, y = (tensor.to(self.device) for tensor in batch)
        return F.cross_entropy(self.model(x), y)

    def fit(self, batches):
        for batch in batches:
            loss = self.training_step(batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.history.append(loss.item())
        return self.history


if __name__ == "__main__":
    torch.manual_seed(0)
    batches = [(torch.randn(16, 8), torch.randint(0, 4, (16,))) for _ in range(4)]
    for loss in Trainer(Net()).fit(batches):
        print("loss", loss)
