"""A training whose parts are named blocks of a profile, in torch_xla's own words."""

import torch
import torch.nn.functional as F
import torch_xla.core.xla_model as xm
import torch_xla.debug.profiler as xp
from torch import nn


class MLP(nn.Module):
    def __init__(self, input_size: int = 10, output_size: int = 2, layers: tuple[int, int] = (5, 5)) -> None:
        super().__init__()
        self.fc1 = nn.Linear(input_size, layers[0])
        self.fc2 = nn.Linear(layers[0], layers[1])
        self.fc3 = nn.Linear(layers[1], output_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return F.log_softmax(self.fc3(x), dim=1)


torch.manual_seed(0)
device = xm.xla_device()
model = MLP().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss_fn = nn.NLLLoss()
model.train()
for _ in range(8):
    optimizer.zero_grad()
    train_x = torch.randn(1, 10).to(device)
    train_label = torch.tensor([1]).to(device)
    with xp.Trace("model_build"):
        loss = loss_fn(model(train_x), train_label)
    with xp.Trace("loss_backward"):
        loss.backward()
    with xp.Trace("optimizer_step"):
        optimizer.step()
    xm.mark_step()
