"""What is reported of a script's parameters."""

from __future__ import annotations

from typing import Any

import torch

from numdrift.harness.records.run.adoption_facts import AdoptionFacts
from numdrift.harness.script.named_tensors import NamedTensor
from numdrift.harness.script.understood import say_parameters


def test_modules_of_one_class_are_counted() -> None:
    events: list[dict[str, Any]] = []
    facts = AdoptionFacts(lambda event, **fields: events.append(fields))
    named = [NamedTensor(f"p{number}", "parameter", torch.zeros(3)) for number in range(2)]
    say_parameters(facts, named, ["Actor", "Actor", "Critic", "Critic", "Encoder"])
    assert [event["text"] for event in events] == ["2 x Actor and 2 x Critic and Encoder: 2 parameters with 6 values"]
