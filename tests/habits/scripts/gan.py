"""Two networks with an optimizer each, trained in turns.

Where: GANs, actor and critic. Each `optimizer.step()` ends a step, so a round is two: the discriminator's and the
generator's. The generator's backward leaves gradients in the discriminator, too; the next `zero_grad` drops them.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.output = nn.Linear(4, 16), nn.Linear(16, 2)

    def forward(self, z):
        return self.output(F.relu(self.hidden(z)))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.output = nn.Linear(2, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.output(F.leaky_relu(self.hidden(x), 0.2))


torch.manual_seed(0)
netG, netD = Generator().to(device), Discriminator().to(device)
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-3, betas=(0.5, 0.999))
ones, zeros = torch.ones(16, 1).to(device), torch.zeros(16, 1).to(device)
for _ in range(3):
    real, noise = (torch.randn(16, 2) * 0.5 + 1).to(device), torch.randn(16, 4).to(device)
    fake = netG(noise)
    lossD = F.binary_cross_entropy_with_logits(netD(real), ones) + F.binary_cross_entropy_with_logits(
        netD(fake.detach()), zeros
    )
    optimizerD.zero_grad()
    lossD.backward()
    optimizerD.step()

    lossG = F.binary_cross_entropy_with_logits(netD(fake), ones)
    optimizerG.zero_grad()
    lossG.backward()
    optimizerG.step()
    print("loss", lossD.item(), "loss", lossG.item())
