"""A recurrent cell over one long sequence: its hidden state, detached, is the first one of the next step."""

import sys
from pathlib import Path

from torch import Tensor

sys.path.append(str(Path(__file__).parents[3]))
from tests.faults.cell import NOTHING, train_cell
from tests.faults.training import Training

memory = NOTHING


def remembering_step(training: Training) -> Tensor:
    global memory
    [(inputs, targets)] = training.batches[training.number]
    training.optimizer.zero_grad()
    prediction, h = training.model(inputs, memory)
    loss = training.loss(prediction, targets)
    loss.backward()
    training.optimizer.step()
    memory = h.detach()
    return loss.detach()


train_cell(remembering_step)
