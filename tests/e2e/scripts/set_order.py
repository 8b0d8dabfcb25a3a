"""A training whose vocabulary follows the order of a set, and whose data is shuffled by a generator without a seed."""

import numpy as np
import torch

torch.manual_seed(0)
words = [f"{start}{end}" for start in ("rain", "sun", "snow") for end in ("bow", "coat", "fall", "light", "drop")]
vocabulary = {word: number for number, word in enumerate(set(words))}
numbers = torch.tensor([vocabulary[word] for word in np.random.permutation(words)])
model = torch.nn.Sequential(torch.nn.Embedding(len(vocabulary), 4), torch.nn.Linear(4, len(vocabulary)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(numbers[:-1]), numbers[1:]).backward()
    optimizer.step()
