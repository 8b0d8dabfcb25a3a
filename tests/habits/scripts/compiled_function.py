"""Single functions are compiled by the decorator: a loss, an activation.

Where: code that compiles only its hot spots. A mode that compiles compiles the function as the script says, and the
model beside it as in any other script. In other modes both are eager.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


@torch.compile
def smooth_loss(logits, labels):
    logs = F.log_softmax(logits, dim=-1)
    picked = -logs.gather(1, labels[:, None]).squeeze(1)
    return (0.9 * picked - 0.1 * logs.mean(-1)).mean()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


torch.manual_seed(0)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = smooth_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
