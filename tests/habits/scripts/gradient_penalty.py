"""A penalty on the gradient: `autograd.grad(create_graph=True)` before the backward.

Where: WGAN-GP, regularization of critics. The inner gradient is a part of the loss; the loss is the tensor whose
`backward()` is called.
"""

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(4, 16)
        self.output = nn.Linear(16, 1)

    def forward(self, x):
        return self.output(torch.tanh(self.hidden(x)))


torch.manual_seed(0)
critic = Critic().to(device)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2, betas=(0.0, 0.9))
batches = torch.randn(4, 2, 16, 4)
for real, fake in batches:
    real, fake = real.to(device), fake.to(device)
    between = (0.3 * real + 0.7 * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty = ((grad.norm(dim=1) - 1) ** 2).mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
