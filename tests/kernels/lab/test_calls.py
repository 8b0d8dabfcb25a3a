from __future__ import annotations

import torch

from numdrift.kernels.lab.calls import LabCall, outputs, same, unwritten

aten = torch.ops.aten


def test_outputs_of_an_op_that_only_writes_are_the_arguments_it_wrote_to() -> None:
    # given
    lists = [[torch.rand(3)] for _ in range(4)]
    call = LabCall((*lists, [], [torch.tensor(1.0)]), {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8, "amsgrad": False, "maximize": False})  # fmt: skip
    overload = aten._fused_adam_.default
    # when
    found = outputs(overload, call, overload(*call.args, **call.kwargs))
    # then the empty list and the steps are left out
    assert [one.name for one in found] == ["self", "grads", "exp_avgs", "exp_avg_sqs"]
    assert found[0].tensors[0] is lists[0][0]
    assert [name for name, _ in unwritten(overload, call)][:1] == ["state_steps"]


def test_running_statistics_of_a_batch_norm_are_outputs_although_its_schema_hides_them() -> None:
    mean, var = torch.zeros(2), torch.ones(2)
    call = LabCall((torch.randn(4, 2, 3), None, None, mean, var, True, 0.1, 1e-5), {})
    overload = aten.native_batch_norm.default
    found = outputs(overload, call, overload(*call.args))
    assert [one.name for one in found] == ["output 0", "output 1", "output 2", "running_mean", "running_var"]
    assert found[3].tensors[0] is mean and (mean != 0).all()


def test_an_argument_that_is_returned_counts_once() -> None:
    x = torch.ones(3)
    found = outputs(aten.add_.Tensor, LabCall((x, x), {}), aten.add_.Tensor(x, x))
    assert [(one.name, len(one.tensors)) for one in found] == [("", 1)]


def test_outputs_that_are_none_are_left_out() -> None:
    x = torch.randn(4, 3)
    _, mean, rstd = aten.native_layer_norm(x, [3], None, None, 1e-5)
    call = LabCall((x, x, [3], mean, rstd, None, None, [True, False, False]), {})
    overload = aten.native_layer_norm_backward.default
    assert [one.name for one in outputs(overload, call, overload(*call.args))] == ["output 0"]


def test_copies_and_float64_leave_the_original_alone() -> None:
    # given
    x = torch.rand(4, 3).t()
    call = LabCall(([x, x], torch.tensor(3)), {"dtype": torch.bfloat16})
    # when
    copy, wide = call.copy(), call.in_float64()
    copy.args[0][0].zero_()
    # then
    assert (x > 0).all() and copy.args[0][0].stride() == x.stride()
    assert wide.args[0][1].dtype == torch.float64 and wide.kwargs == {"dtype": torch.float64}
    assert wide.args[1].dtype == torch.int64
    assert call.kwargs == {"dtype": torch.bfloat16}


def test_equality_is_that_of_bits_with_one_nan() -> None:
    one = torch.tensor([1.0, 0.0, float("nan"), float("inf"), 1.0])
    other = torch.tensor([1.0, -0.0, float("nan"), float("inf"), 1.0000001])
    assert same(one, other).tolist() == [True, False, True, True, False]
