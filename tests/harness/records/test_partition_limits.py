from __future__ import annotations

import pytest

from numdrift.harness.errors import UsageError
from numdrift.harness.records.tools.partition_record import PartitionConfig, operator_name


def test_nothing_is_limited_unless_it_is_said() -> None:
    config = PartitionConfig()
    assert (
        config.min_operator_percentage_threshold,
        config.min_subgraph_size,
        config.max_subgraph_count,
    ) == (
        0.0,
        -1,
        -1,
    )
    assert config.moved == frozenset()


def test_a_config_survives_json() -> None:
    config = PartitionConfig(0.8, 2, 3, {"aten::log_softmax", "aten::sort"})
    assert PartitionConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize("text", ["aten::sum", "sum", "aten.sum", "torch.ops.aten.sum", "aten::sum.dim_IntList"])
def test_an_operator_is_named_in_any_form(text: str) -> None:
    assert operator_name(text) == "aten::sum"


def test_an_operator_of_another_library_keeps_its_name() -> None:
    assert operator_name("mylib::twice.default") == "mylib::twice"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"min_operator_percentage_threshold": 80}, "must be from 0 to 1"),
        ({"min_subgraph_size": 0}, "at least 1, or -1"),
        ({"max_subgraph_count": -2}, "at least 1, or -1"),
        ({"ops_to_partition": "aten::sort"}, "a set of names"),
        ({"ops_to_partition": ["aten::"]}, "names no operator"),
    ],
)
def test_what_is_no_limit_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        PartitionConfig(**wrong)  # type: ignore[arg-type]
