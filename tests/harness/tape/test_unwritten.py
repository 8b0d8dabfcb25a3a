"""Elements that no op has written: which they are, and whether a step reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from numdrift.harness.tape.replaying.replay import Replay
from numdrift.harness.tape.replaying.settling import settle
from numdrift.harness.tape.replaying.unwritten import NO_VALUES, _Trial, unwritten_reads
from numdrift.harness.tape.tape import Tape

from .adding_anywhere import X as ROWS
from .adding_anywhere import step_of

OPS = torch.library.Library("partly", "DEF")
OPS.define("padded(Tensor x) -> Tensor")
MEMORY = torch.Generator().manual_seed(0)


def padded(x: Tensor) -> Tensor:
    """Return x with two more rows, which are not written. Memory is never the same twice."""
    out = torch.empty(len(x) + 2, *x.shape[1:])
    if not torch.are_deterministic_algorithms_enabled():  # what happens to be in the memory
        out.copy_(torch.rand(out.shape, generator=MEMORY))
    out[:-2] = x
    return out


OPS.impl("padded", padded, "CPU")
X = torch.rand(6, 4, generator=torch.Generator().manual_seed(1)) + 0.5


def masks_in(tape: Tape) -> dict[str, list[Tensor | None]]:
    trial = _Trial()
    Replay(tape).run(trial)
    return {tape.calls[position].name: masks for position, masks in trial.masks.items()}


def test_rows_beyond_an_inputs_length_are_unwritten() -> None:
    # given pairs of inputs, so many that the C library maps new memory: a NaN of another test would look like a result
    pairs = 1 << 16
    scores = torch.randn(10, 2 * pairs, 5).log_softmax(2)
    lengths, targets = torch.tensor([10, 6]).repeat(pairs), torch.randint(1, 5, (2 * pairs, 3))
    target_lengths = torch.tensor([3, 2]).repeat(pairs)
    found = masks_in(step_of(lambda x: nn.functional.ctc_loss(x, targets, lengths, target_lengths), scores))
    loss, alphas = found["_ctc_loss"]
    assert loss is None and alphas is not None
    # [batch, time, 2 * target + 1]: the second input has 6 rows of 5 places, after a row that is written as a whole
    expected = torch.ones(2, 10, 7, dtype=torch.bool)
    expected[0] = False
    expected[1, :6, :5] = expected[1, 0] = False
    assert torch.equal(alphas, expected.repeat(pairs, 1, 1))


def test_the_workspace_of_a_library_is_no_value() -> None:
    lstm = nn.LSTM(4, 5)
    found = masks_in(step_of(lambda x: lstm(x)[0].sum(), X[None]))
    *values, workspace = found["mkldnn_rnn_layer"]
    assert values == [None, None, None] and workspace is not None and workspace.all()


@pytest.mark.parametrize("name", NO_VALUES)
def test_the_table_names_outputs_that_the_ops_have(name: str) -> None:
    schema: Any = getattr(torch.ops.aten, name).default._schema
    # mask for debugging, state of a generator, workspace: tensors, none of which is the first result
    assert all(str(schema.returns[number].type) == "Tensor" and number > 0 for number in NO_VALUES[name])


def masked(x: Tensor, rows: int) -> Tensor:
    mask = torch.empty(6, 4)
    mask[:rows] = 2.0
    return (x * mask).sum()


@pytest.mark.parametrize(
    ("work", "reads"),
    [
        pytest.param(lambda x: masked(x, 6), [], id="all written"),
        pytest.param(lambda x: masked(x, 4), [("aten.empty.memory_format", "aten.mul.Tensor")], id="part of an empty"),
        pytest.param(lambda x: torch.empty_like(x).copy_(x).sum(), [], id="copied to"),
        pytest.param(lambda x: torch.ops.partly.padded(x)[:6].sum(), [], id="what was written of a result"),
        pytest.param(
            lambda x: torch.ops.partly.padded(x).sum(), [("partly.padded.default", "aten.sum.default")],
            id="what was not written of a result",
        ),
    ],
)  # fmt: skip
def test_reads_of_what_no_op_has_written_are_found(
    work: Callable[[Tensor], Tensor], reads: list[tuple[str, str]]
) -> None:
    found = unwritten_reads(step_of(work, X))
    assert [(read.made_by.op, read.read_by.op) for read in found] == reads


def test_a_call_that_repeats_what_it_writes_does_repeat() -> None:
    # given a step that does not replay, because of another op
    tape = step_of(lambda x: torch.ops.adding.anywhere(torch.ops.partly.padded(x)[:64]).tanh().sum(), ROWS)
    # when
    settled = settle(tape)
    # then
    assert settled is not None and [call.op for call in settled.calls] == ["adding.anywhere.default"]
    assert settled.unwritten
