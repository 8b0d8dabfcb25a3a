from __future__ import annotations

import json
import math
from dataclasses import replace

from numdrift.kernels.lab.check import CheckRow, as_data, by_kernel, summary
from numdrift.kernels.lab.measures import QUANTILES, Bias, Measures

NONE = Bias(0.0, 0.0, "up")


def measures(largest: float, *, z: float = 0.0, **more: object) -> Measures:
    errors = tuple(largest * share for share in QUANTILES)
    plain = Measures("", 10, 10, errors, 0.5, NONE, Bias(0.1, z, "from 0"), 0.25, {}, (1.0, 2.0))
    return replace(plain, **more)  # type: ignore[arg-type]


def row(inputs: str, *found: Measures, kernel: str = "fma", variant: str = "") -> CheckRow:
    return CheckRow(kernel, inputs, variant, "measured", measures=found)


def test_each_measure_is_the_worst_for_itself() -> None:
    one = summary(
        [
            row("random", measures(4.0, rho=2.0, mismatches={"nan where finite": 3})),
            row("range", measures(8.0, differs=0.5, z=-9.0, mismatches={"nan where finite": 2})),
        ]
    )
    assert (one.where, one.max_ulp, one.median_ulp) == ("range", 8.0, 4.0)
    assert (one.rho, one.differs) == (2.0, 0.5)
    assert one.bias == Bias(0.1, -9.0, "from 0")
    assert one.remarks == "nan where finite: 5"


def test_the_output_is_named_where_there_are_several() -> None:
    one = summary([row("random", measures(1.0, output="output 0"), measures(3.0, output="output 1"))])
    assert one.where == "random, output 1" and one.max_ulp == 3.0
    assert one.remarks == "agrees"


def test_extremes_that_overflow_count_only_where_nothing_else_was_measured() -> None:
    special = row("special", measures(1e9, rho=1e6, mismatches={"nan where finite": 1}))
    both = summary([row("random", measures(1.0)), special])
    assert (both.where, both.max_ulp, both.rho) == ("random", 1.0, 0.5)
    assert both.remarks == "nan where finite: 1"
    assert summary([special]).max_ulp == 1e9


def test_numbers_that_are_too_alike_prove_no_bias() -> None:
    one = summary([row("random", measures(1.0, z=1.0)), row("ties", measures(1.0, z=40.0))])
    assert one.bias is not None and one.bias.z == 1.0


def test_failures_name_their_inputs_unless_it_is_all_of_them() -> None:
    failed = [CheckRow("fma", name, "", "failed", "raised ValueError: x") for name in ("random", "ties")]
    assert summary(failed).remarks == "failed: raised ValueError: x"
    assert summary(failed).max_ulp is None and summary(failed).where == ""
    mixed = summary([failed[0], row("range", measures(2.0)), failed[1]])
    assert mixed.status == "failed" and mixed.max_ulp == 2.0
    assert mixed.remarks == "failed on random, ties: raised ValueError: x; agrees"
    assert summary([replace(failed[0], status="not available")]).status == "not available"


def test_kernels_keep_their_order() -> None:
    rows = [row("random", measures(1.0), kernel=name) for name in ("b", "a", "b")]
    assert [one.kernel for one in by_kernel(rows)] == ["b", "a"]


def test_data_is_strict_json() -> None:
    # given numbers that JSON does not have
    found = measures(2.0, worst=(math.inf, 1.0), up=Bias(-math.inf, 1.0, "up"), rho=None)
    # when
    text = json.dumps(as_data(row("random", found, variant="training")), allow_nan=False)
    # then
    (output,) = json.loads(text)["outputs"]
    assert output["worst"] == {"got": "inf", "expected": 1.0}
    assert output["bias_up"] == {"ulp": "-inf", "z": 1.0}
    assert output["rho"] is None
    assert output["quantiles"][-1] == [1.0, 2.0] and output["max_ulp"] == 2.0
