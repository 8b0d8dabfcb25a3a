"""The worked examples on top of modules that are hard to follow print what they say."""

from __future__ import annotations

import doctest
from types import ModuleType
from typing import Any

import pytest
import torch

from numdrift.harness import search
from numdrift.harness.localize.align import alignment, value_links
from numdrift.harness.localize.align.alignment import align
from numdrift.harness.localize.align.op_units import op_name
from numdrift.harness.localize.align.storage_flow import flow_of
from numdrift.harness.localize.causes import swap_sites
from numdrift.harness.localize.causes.examination import examine
from numdrift.harness.localize.causes.site_causes import causes_of
from numdrift.harness.localize.causes.suspects import suspects
from numdrift.harness.localize.execute import hybrid, layout_words
from numdrift.harness.localize.execute.tape_pair import paired
from numdrift.harness.tape import tape
from numdrift.harness.tape.recording.tape_recorder import TapeRecorder
from numdrift.harness.tape.replaying.laid_out import relaid

KNOWN: dict[str, Any] = {
    "torch": torch,
    "relaid": relaid,
    "TapeRecorder": TapeRecorder,
    "align": align,
    "flow_of": flow_of,
    "op_name": op_name,
    "paired": paired,
    "examine": examine,
    "causes_of": causes_of,
    "suspects": suspects,
}
"""What the examples use of other modules."""


def example_of(module: ModuleType, known: dict[str, Any]) -> doctest.DocTest:
    text = module.__doc__
    assert text is not None
    return doctest.DocTestParser().get_doctest(text, vars(module) | known, module.__name__, module.__file__, 0)


def executed(example: doctest.DocTest) -> doctest.TestResults:
    return doctest.DocTestRunner(optionflags=doctest.FAIL_FAST).run(example, clear_globs=False)


@pytest.mark.parametrize(
    "module", [tape, alignment, value_links, hybrid, layout_words, swap_sites, search], ids=lambda one: one.__name__
)
def test_an_example_prints_what_it_says(module: ModuleType) -> None:
    # given the step that the tape's example records
    of_tape = example_of(tape, KNOWN)
    executed(of_tape)
    example = example_of(module, KNOWN | {"recorded_step": of_tape.globs["recorded_step"]})
    # when
    done = executed(example)
    # then
    assert example.examples and done.attempted == len(example.examples) and not done.failed
