"""A training that draws, writes in place, by a view too, and has buffers; it says itself where its graphs end.

python pictured.py [--nan-at 2]

It prints a digest of its parameters, and the graphs that torch_xla has executed.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

dump = Path(tempfile.mkdtemp(), "graphs")
os.environ |= {"XLA_SAVE_TENSORS_FILE": str(dump), "XLA_SAVE_TENSORS_FMT": "text"}

import torch
import torch_xla

nan_at = int(sys.argv[2]) if "--nan-at" in sys.argv else -1
torch.manual_seed(0)
device = torch_xla.device()


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.first(x)) * 1.5
        hidden[:, :4].mul_(2)
        output: torch.Tensor = self.last(torch.nn.functional.dropout(torch.tanh(hidden)))
        return output


model = Model().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
batches = [(torch.randn(32, 8), torch.randn(32, 1)) for _ in range(4)]
for step, (x, y) in enumerate(batches):
    if step == nan_at:
        x[0, 0] = float("nan")
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
    optimizer.step()
    torch_xla.sync()
values = [one.detach().cpu().numpy().tobytes() for one in model.state_dict().values()]
text = "".join(path.read_text() for path in dump.parent.glob(f"{dump.name}.*"))
print(hashlib.sha256(b"".join(values)).hexdigest())
print(*(line.split()[-1] for line in text.splitlines() if line.startswith("Graph Hash")))
