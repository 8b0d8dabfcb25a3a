"""Which random numbers the modes of an investigation draw, and what is advised where they differ."""

from __future__ import annotations

import pytest

from numdrift.harness.investigate.experiments.investigation_plan import (
    compared_modes,
    remedy_of_draws,
    sentence_of_draws,
)
from numdrift.harness.records.modes.mode_spec import parse_mode


@pytest.mark.parametrize(
    ("modes", "compared"),
    [
        (["cpu", "cuda"], ["cpu", "cuda,draws=cpu"]),
        (["cuda", "cuda,device=cuda:1"], ["cuda", "cuda,device=cuda:1"]),
        (["cuda,draws=device", "cpu"], ["cuda,draws=device", "cpu"]),
        (["cuda", "compile,device=cuda"], ["cuda", "compile,device=cuda,fallback_random=on"]),
    ],
)
def test_two_devices_draw_the_cpus_numbers_unless_they_say_otherwise(modes: list[str], compared: list[str]) -> None:
    found = compared_modes([parse_mode(mode) for mode in modes])
    assert [str(spec) for spec in found] == compared
    assert bool(sentence_of_draws(found)) == any("draws=cpu" in mode for mode in compared)


def test_the_remedy_names_what_makes_two_modes_draw_the_same() -> None:
    def remedy(*modes: str) -> str:
        return remedy_of_draws([parse_mode(mode) for mode in modes])

    assert remedy("cpu", "cuda").startswith("each device draws its own numbers: run cuda,draws=cpu, or")
    assert "run cuda,draws=cpu, or" in remedy("cuda,draws=device", "cpu")
    assert remedy("cpu", "cuda,draws=cpu") == "use the same seeds in both and make both draw equally often"
    assert remedy("cpu", "lazy") == "use the same seeds in both and make both draw equally often"
    assert remedy("cuda", "compile,device=cuda").endswith("and run a compiled mode with fallback_random=on")
    assert remedy("xla", "cpu").endswith("and run an xla mode with fallback_random=on")
