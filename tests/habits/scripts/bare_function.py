"""The model is a function and a list of tensors: no nn.Module.

Where: lectures from scratch, code that comes from JAX or NumPy. The parameters are the tensors that the optimizer
holds, named by the script's variables where it has some.
"""

import torch
import torch.nn.functional as F

device = "cuda" if torch.cuda.is_available() else "cpu"

torch.manual_seed(0)
w1 = (0.3 * torch.randn(8, 16)).to(device).requires_grad_()
b1 = torch.zeros(16).to(device).requires_grad_()
w2 = (0.3 * torch.randn(16, 4)).to(device).requires_grad_()
parameters = [w1, b1, w2]


def model(x):
    return torch.tanh(x @ w1 + b1) @ w2


optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
inputs, labels = torch.randn(4, 16, 8), torch.randint(0, 4, (4, 16))
for x, y in zip(inputs, labels, strict=True):
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
