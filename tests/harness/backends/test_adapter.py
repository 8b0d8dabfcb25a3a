from __future__ import annotations

import pytest

from numdrift.harness.backends.eager.mode import EagerMode
from numdrift.harness.errors import ModeError
from numdrift.harness.hooks.backend_adapter import adapter_for
from numdrift.harness.records.modes.mode_spec import parse_mode


@pytest.mark.parametrize("mode", ["cpu", "compile", "lazy", "xla"])
def test_every_mode_of_our_own_has_a_whole_adapter(mode: str) -> None:
    assert adapter_for(parse_mode(mode)).name


def test_a_mode_without_a_whole_adapter_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Half:
        name = "half"

        def versions(self) -> dict[str, str]:
            return {}

    monkeypatch.setattr(EagerMode, "adapter", lambda self: Half())
    with pytest.raises(ModeError, match=r"a Half without instruction_set, executes_at_once, observe_support"):
        adapter_for(parse_mode("cpu"))
    monkeypatch.setattr(EagerMode, "adapter", lambda self: None)
    with pytest.raises(ModeError, match="a NoneType without name"):
        adapter_for(parse_mode("cpu"))
