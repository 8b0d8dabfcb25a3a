"""Threads add the shares of a gradient in the order in which they get to it."""

import random
import threading
import time

import torch
from tests.faults.training import Training, modules
from torch import Tensor, nn

MODELS = ("autoencoder",)
EXPECTED = "nondeterministic"
LINE = "added.add_(part)"


def plant(training: Training) -> None:
    weight = modules(training, nn.Linear)[0].weight
    weight.register_hook(raced)


def raced(gradient: Tensor) -> Tensor:
    added, turn = torch.zeros_like(gradient), threading.Lock()
    ready = threading.Barrier(6)

    def add(part: Tensor) -> None:
        ready.wait()
        time.sleep(random.SystemRandom().random() * 1e-3)
        with turn:
            added.add_(part)

    shares = (0.03, 0.07, 0.13, 0.19, 0.25, 0.33)
    threads = [threading.Thread(target=add, args=(gradient * share,)) for share in shares]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return added
