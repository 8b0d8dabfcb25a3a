"""An embedding with sparse gradients, and SparseAdam for it.

Where: recommendation and word vectors. A sparse gradient is digested by its dense contents; the optimizer receives
it as it is.
"""

import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.center = nn.Embedding(30, 6, sparse=True)
        self.context = nn.Embedding(30, 6, sparse=True)

    def forward(self, center, context):
        return (self.center(center) * self.context(context)).sum(-1)


torch.manual_seed(0)
model = SkipGram().to(device)
optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=0.05)
centers, contexts = torch.randint(0, 30, (4, 32)), torch.randint(0, 30, (4, 32))
labels = torch.randint(0, 2, (4, 32)).float()
for center, context, label in zip(centers, contexts, labels, strict=True):
    loss = F.binary_cross_entropy_with_logits(model(center.to(device), context.to(device)), label.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
