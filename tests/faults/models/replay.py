"""A cell that is trained on outputs of earlier steps, drawn from a list that grows by one each step."""

import random
import sys
from pathlib import Path

from torch import Tensor

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.cell import NOTHING, train_cell
from tests.faults.training import Training

choices = random.Random(0)
earlier = [NOTHING]


def replaying_step(training: Training) -> Tensor:
    [(inputs, targets)] = training.batches[training.number]
    training.optimizer.zero_grad()
    prediction, h = training.model(inputs, choices.choice(earlier))
    loss = training.loss(prediction, targets)
    loss.backward()
    training.optimizer.step()
    earlier.append(h.detach())
    return loss.detach()


train_cell(replaying_step)
