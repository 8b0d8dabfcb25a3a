"""Several losses are weighted and summed.

Where: detection, multi-task and variational models. The loss is the sum, whose `backward()` is called;
`numdrift.log` can record the parts.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(8, 6)
        self.decoder = nn.Linear(3, 8)

    def forward(self, x, noise):
        mean, log_variance = self.encoder(x).chunk(2, dim=-1)
        code = mean + noise * torch.exp(0.5 * log_variance)
        return self.decoder(code), mean, log_variance


torch.manual_seed(0)
model = Autoencoder().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
inputs, noises = torch.randn(4, 16, 8), torch.randn(4, 16, 3)
for x, noise in zip(inputs, noises, strict=True):
    x = x.to(device)
    output, mean, log_variance = model(x, noise.to(device))
    reconstruction = F.mse_loss(output, x)
    divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).mean()
    loss = reconstruction + 0.1 * divergence
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item(), "=", reconstruction.item(), "+ 0.1 *", divergence.item())
