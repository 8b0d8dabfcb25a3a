"""`torch.func`: the loss is a pure function of the parameters, and `grad_and_value` returns its gradient.

Where: meta-learning, code that comes from JAX. The loss is the value that the transform returns, and a step ends
with the optimizer's.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad_and_value

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
parameters = {name: value.detach().clone() for name, value in model.named_parameters()}


def loss_of(parameters, x, y):
    return F.cross_entropy(functional_call(model, parameters, (x,)), y)


inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    grads, loss = grad_and_value(loss_of)(parameters, x.to(device), y.to(device))
    parameters = {name: value - 0.1 * grads[name] for name, value in parameters.items()}
    print("loss", loss.item())
