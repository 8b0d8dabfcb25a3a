"""The registry of replaced names: each has one owner or several that wrap it, and all of it can be taken back."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from numdrift.harness.errors import AlreadyPatched
from numdrift.harness.torch_private.patches import Patches, lifted, patched_names


class Inherited:
    def method(self) -> str:
        return "torch's"

    @classmethod
    def of_class(cls) -> str:
        return cls.__name__


class Holder(Inherited):
    @classmethod
    def own(cls) -> str:
        return cls.__name__


def around(word: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
    def make(before: Callable[..., str]) -> Callable[..., str]:
        return lambda *args: f"{word}({before(*args)})"

    return make


def test_a_name_that_is_replaced_is_refused_and_both_owners_are_named() -> None:
    # given
    module = types.ModuleType("library")
    vars(module)["name"] = original = object()
    first, second = Patches("the first part"), Patches("the second part")
    first.replace(module, "name", replaced := object())
    # when
    attempts: list[Callable[[], None]] = [
        lambda: second.replace(module, "name", object()),
        lambda: second.claim(module, "name"),
        lambda: second.wrap(module, "name", lambda before: before),
        lambda: first.replace(module, "name", object()),
    ]
    for patch in attempts:
        with pytest.raises(AlreadyPatched, match=r"library\.name is already replaced by the first part") as raised:
            patch()
        assert raised.value.other == "the first part"
        assert module.name is replaced
    # then
    first.undo()
    assert module.name is original
    second.replace(module, "name", replaced)
    second.undo()
    assert module.name is original


def test_several_wrap_one_name_and_leave_in_any_order() -> None:
    module = types.ModuleType("library")
    vars(module)["name"] = original = lambda: "torch"
    owners = [Patches(one) for one in "abc"]
    for one in owners:
        one.wrap(module, "name", around(one.owner))
    assert module.name() == "c(b(a(torch)))"
    with pytest.raises(AlreadyPatched, match="already replaced by c; d cannot"):
        Patches("d").replace(module, "name", original)
    owners[0].undo()
    assert module.name() == "c(b(torch))"
    owners[2].undo()
    assert module.name() == "b(torch)"
    owners[1].undo()
    assert module.name is original
    assert patched_names() == []


def test_what_a_script_has_wrapped_meanwhile_is_wrapped_as_well() -> None:
    module = types.ModuleType("library")
    vars(module)["name"] = original = lambda: "torch"
    first, second = Patches("a"), Patches("b")
    first.wrap(module, "name", around("a"))
    vars(module)["name"] = around("script")(module.name)
    second.wrap(module, "name", around("b"))
    assert module.name() == "b(script(a(torch)))"
    second.undo()
    first.undo()
    assert module.name is original


@pytest.mark.parametrize("name", ["method", "of_class", "own"])
def test_a_class_gets_back_what_it_had_and_no_more(name: str) -> None:
    before = dict(vars(Holder))
    with Patches("a part") as patches:
        patches.replace(Holder, name, lambda *_: "ours")
    assert Holder.__dict__[name] is not before.get(name)
    patches.undo()
    assert dict(vars(Holder)) == before


def test_settings_of_torchs_compilers_are_put_back() -> None:
    from torch._inductor import config

    before = config.fx_graph_cache
    patches = Patches("a part")
    patches.wrap(config, "fx_graph_cache", lambda _: not before)
    assert config.fx_graph_cache is not before
    patches.undo()
    assert config.fx_graph_cache is before


def test_an_install_that_fails_leaves_nothing_patched() -> None:
    # given
    holder = types.ModuleType("library")
    vars(holder).update(one=1, two=2, three=3)
    undone: list[str] = []
    other = Patches("another part")
    other.replace(holder, "three", 30)
    # when
    with pytest.raises(AlreadyPatched), Patches("a part") as patches:
        patches.replace(holder, "one", 10)
        patches.also(lambda: undone.append("hook"))
        patches.wrap(holder, "two", lambda before: before * 10)
        assert (holder.one, holder.two) == (10, 20)
        patches.replace(holder, "three", 33)
    # then
    assert (holder.one, holder.two, holder.three) == (1, 2, 30)
    assert undone == ["hook"]
    other.undo()


def test_everything_is_undone_from_the_last_to_the_first_whatever_fails() -> None:
    undone: list[int] = []

    def fail() -> None:
        raise ValueError("out of luck")

    patches = Patches("a part")
    patches.also(lambda: undone.append(1))
    patches.also(fail)
    patches.also(lambda: undone.append(2))
    with pytest.raises(ValueError, match="out of luck"):
        patches.undo()
    assert undone == [2, 1]
    patches.undo()
    assert undone == [2, 1]


def test_an_owner_that_claims_a_name_puts_it_itself_and_leaves_torchs_own_behind() -> None:
    own = torch.nn.Module.__call__
    ours: Any = lambda self, *args: "ours"
    patches = Patches("a part")
    patches.claim(torch.nn.Module, "__call__")
    assert torch.nn.Module.__call__ is own
    setattr(torch.nn.Module, "__call__", ours)  # noqa: B010
    with lifted(torch.nn.Module, "__call__"):
        assert torch.nn.Module.__call__ is own
    assert torch.nn.Module.__call__ is ours
    patches.undo()
    assert torch.nn.Module.__call__ is own
    with lifted(torch.nn.Module, "__call__"):
        assert torch.nn.Module.__call__ is own
