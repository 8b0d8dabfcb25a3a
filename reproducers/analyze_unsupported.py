"""An FFT, and a product with its complex result: operators that a backend without complex numbers lacks.

The second of the two examples for `numdrift analyze` (docs/guide/analyze.md). This script trains nothing: it has
neither a loss nor an optimizer.

    python reproducers/analyze_unsupported.py                  # eager
    DEVICE=lazy python reproducers/analyze_unsupported.py      # lazy tensors, TorchScript backend
    numdrift analyze reproducers/analyze_unsupported.py --mode compile
"""

import os

import torch
import torch._lazy.ts_backend
from torch import Tensor, nn


class UnsupportedModel(nn.Module):
    def forward(self, x: Tensor) -> Tensor:  # [4] -> [4], complex
        y = torch.fft.fft(x)
        x = x + 10
        product: Tensor = x * y
        return product


def main() -> None:
    device = os.environ.get("DEVICE", "cpu")
    if device == "lazy":
        torch._lazy.ts_backend.init()
    torch.manual_seed(0)
    model = UnsupportedModel().to(device)

    inp = torch.rand(4).to(device)

    model.train()
    output = model(inp)
    if device == "lazy":
        torch._lazy.mark_step()
    print(f"output {output.cpu()}")


if __name__ == "__main__":
    main()
