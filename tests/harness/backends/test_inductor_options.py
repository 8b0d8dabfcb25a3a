from __future__ import annotations

import pytest

from numdrift.harness.errors import UsageError
from numdrift.harness.torch_private.compiler.compiling import inductor_option

from ...conftest import Numdrift


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("cpp.simdlen", "1", 1),
        ("cpp.simdlen", "none", None),
        ("split_reductions", "off", False),
        ("split_reductions", "true", True),
        ("max_fusion_size", "1", 1),
        ("cpp.enable_floating_point_contract_flag", "fast", "fast"),
    ],
)
def test_a_text_becomes_a_value_of_the_options_type(name: str, text: str, value: object) -> None:
    found = inductor_option(name, text)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("cpp.simdle", "1", "cpp.simdlen"),
        ("max_fusion_size", "many", "int"),
        ("pattern_matcher", "3", "bool"),
        ("qqqq", "1", "no such option"),
    ],
)
def test_anything_else_is_refused_and_the_remedy_named(name: str, text: str, named: str) -> None:
    with pytest.raises(UsageError, match=named):
        inductor_option(name, text)


@pytest.mark.parametrize(
    ("mode", "named"),
    [
        ("compile,inductor.cpp.simdle=1", "similar options are cpp.simdlen"),
        ("compile,backend=aot_eager,inductor.cpp.simdlen=1", "has no effect with backend aot_eager"),
        ("lazy,inductor.cpp.simdlen=1", "belongs to compile"),
    ],
)
def test_a_mode_with_a_wrong_option_is_refused(numdrift: Numdrift, tiny: str, mode: str, named: str) -> None:
    done = numdrift("run", tiny, "--mode", mode)
    assert done.returncode == 2
    assert named in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
