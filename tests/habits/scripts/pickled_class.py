"""Objects of classes that the script defines are pickled: a whole model by `torch.save`.

Where: quick experiments, caches. `__main__` is the script itself, so its classes are found where pickle looks for them.
"""

import io
import pickle

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Settings:
    def __init__(self, lr):
        self.lr = lr


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


settings = pickle.loads(pickle.dumps(Settings(lr=0.1)))
torch.manual_seed(0)
file = io.BytesIO()
torch.save(Net(), file)
file.seek(0)
model = torch.load(file, weights_only=False).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=settings.lr)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
print("class", pickle.dumps(settings)[:30])
