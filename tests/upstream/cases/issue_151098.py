"""pytorch#151098: a compiled attention magnifies rounding, as its scale multiplies the scores."""

import torch


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (torch.nn.Linear(64, 64) for _ in range(3))

    def forward(self, x, mask):
        query, key, value = (layer(x).permute(0, 2, 1, 3) for layer in (self.query, self.key, self.value))
        scores = torch.matmul(query, key.transpose(-2, -1)).div(1.0 / 8**0.5) + mask
        return scores.softmax(dim=-1).matmul(value)


torch.manual_seed(0)
model = Attention()
x, mask = torch.randn(1, 16, 64, 64), torch.zeros(1, 1, 16, 16)
print((model(x, mask) - torch.compile(model)(x, mask)).abs().max())
