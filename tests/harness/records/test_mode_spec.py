from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.errors import ModeError, UsageError
from numdrift.harness.records.modes.execution_keys import EXECUTION_KEYS
from numdrift.harness.records.modes.mode_registry import OWN, VENDORS, registry
from numdrift.harness.records.modes.mode_spec import (
    DOTTED_KEYS,
    PLAIN_KEYS,
    ModeSpec,
    parse_mode,
    parse_modes,
)
from numdrift.harness.records.modes.setting_keys import SETTING_KEYS, device_of, refused_setting

VALUES: dict[str, st.SearchStrategy[str]] = {
    "device": st.sampled_from(["cpu", "cuda:1"]),
    "backend": st.sampled_from(["inductor", "aot_eager"]),
    "dtype": st.sampled_from(["float32", "float64", "bfloat16", "float16"]),
    "threads": st.integers(1, 10**20).map(str),
    "seed": st.integers(0, 10**20).map(str),
    "contract": st.sampled_from(["fast", "off"]),
    "emulate_casts": st.sampled_from(["on", "off"]),
    "allow_rnn": st.sampled_from(["on", "off"]),
    "graph_cache": st.sampled_from(["on", "off"]),
    "fallback_random": st.sampled_from(["on", "off"]),
    **{key: st.sampled_from(values) for key, values in {**SETTING_KEYS, **EXECUTION_KEYS}.items()},
    "workers": st.integers(0, 64).map(str),
    "dynamic": st.sampled_from(["on", "off"]),
    "draws": st.sampled_from(["cpu", "device"]),
    "mark_step": st.sampled_from(["auto", "phase", "step", "off"]),
    "execute": st.sampled_from(["graph", "op"]),
    "python": st.sampled_from(["/opt/python 3/bin/python", "python3=x"]),
    "timeout": st.floats(0, exclude_min=True, allow_infinity=False, allow_nan=False).map(repr),
    "script": st.sampled_from(["other.py", "/a b/train.py"]),
    "git": st.sampled_from(["HEAD~1", "v1.0^{}", "a1b2c3d"]),
    "cwd": st.sampled_from(["runs", "/a b"]),
    "args": st.sampled_from(["", "--lr 0.1", "--names a,b", "'x,seed=1' --y", '"a b",c']),
    "args+": st.sampled_from(["--accum 4", "--names a,b", "'threads=2,seed=1'"]),
    "env": st.text(string.ascii_letters + "=. /", max_size=6).map(str.strip),
    "kernel": st.sampled_from(["fma", "aten"]),
    "decompose": st.just("off"),
    "inductor": st.sampled_from(["1", "off"]),
}
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
inner_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.@:]{0,8}", fullmatch=True)
bases = st.sampled_from([entry.name for entry in OWN] + list(VENDORS))


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A valid specification, its keys in any order."""
    base = draw(bases)
    known = [*PLAIN_KEYS, *DOTTED_KEYS]
    fitting = [key for key in known if base in (registry.bases_of_key(key) or (base,))]
    pairs = []
    keys = draw(st.lists(st.sampled_from(fitting), unique=True))
    plain = {key: draw(VALUES[key]) for key in keys if key in PLAIN_KEYS}
    while refused := refused_setting(plain, device_of(base, plain.get("device"))):
        del plain[refused[0]]
    for key in (key for key in keys if key in plain or key in DOTTED_KEYS):
        inner = draw(st.lists(inner_names, min_size=1, max_size=2, unique=True)) if key in DOTTED_KEYS else [""]
        pairs += [f"{key}.{one}={draw(VALUES[key])}" if one else f"{key}={plain[key]}" for one in inner]
    return ",".join([draw(st.sampled_from(["", draw(names) + "="])) + base, *pairs])


def test_the_strategies_know_every_key() -> None:
    assert set(VALUES) == {*PLAIN_KEYS, *DOTTED_KEYS}


@given(texts())
def test_a_specification_survives_writing_and_parsing(text: str) -> None:
    spec = parse_mode(text)
    assert parse_mode(str(spec)) == spec


@given(texts())
def test_a_specification_survives_json(text: str) -> None:
    spec = parse_mode(text)
    assert ModeSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@given(st.text(string.printable) | st.text("cpu,=.env lazy0\n"))
def test_any_text_is_a_specification_or_an_error_on_one_line(text: str) -> None:
    try:
        parse_mode(text)
    except ModeError as error:
        assert "\n" not in str(error) and error.exit_code == 2


@pytest.mark.parametrize(
    ("pair", "field", "value"),
    [
        ("device=cuda:1", "device", "cuda:1"),
        ("backend=aot_eager", "backend", "aot_eager"),
        ("dtype=float64", "dtype", "float64"),
        ("threads=2", "threads", 2),
        ("seed=0", "seed", 0),
        ("contract=fast", "contract", "fast"),
        ("emulate_casts=on", "emulate_casts", "on"),
        ("allow_rnn=on", "allow_rnn", "on"),
        ("graph_cache=off", "graph_cache", "off"),
        ("fallback_random=on", "fallback_random", "on"),
        ("python=/opt/bin/python", "python", "/opt/bin/python"),
        ("timeout=1.5", "timeout", 1.5),
        ("env.FAULT=a=b", "env", {"FAULT": "a=b"}),
        ("env.FAULT=", "env", {"FAULT": ""}),
        ("kernel.aten.tanh=fma", "kernel", {"aten.tanh": "fma"}),
        ("decompose.gelu=off", "decompose", {"gelu": "off"}),
        (" threads = 2 ", "threads", 2),
        ("script=other.py", "script", "other.py"),
        ("git=HEAD~1", "git", "HEAD~1"),
        ("cwd=sub", "cwd", "sub"),
        ("args=", "args", ""),
        ("args+=--accum 4", "more_args", "--accum 4"),
    ],
)
def test_each_key_is_read(pair: str, field: str, value: object) -> None:
    assert getattr(parse_mode(f"compile,{pair}"), field) == value


@pytest.mark.parametrize(
    ("text", "words", "threads"),
    [
        ("cpu", ["--lr", "1"], None),
        ("cpu,args+=--accum 4", ["--lr", "1", "--accum", "4"], None),
        ("cpu,args+=--accum 4,threads=2", ["--lr", "1", "--accum", "4"], 2),
        ("cpu,args=", [], None),
        ("cpu,args=--names a,b --x", ["--names", "a,b", "--x"], None),
        ("cpu,args=--names 'a, b',threads=2", ["--names", "a, b"], 2),
        ("cpu,args='threads=1,seed=2',threads=3", ["threads=1,seed=2"], 3),
        ("cpu,threads=2,args=a,args+=b", ["a", "b"], 2),
    ],
)
def test_a_mode_has_arguments_of_its_own(text: str, words: list[str], threads: int | None) -> None:
    spec = parse_mode(text)
    assert spec.arguments(["--lr", "1"]) == tuple(words) and spec.threads == threads
    assert parse_mode(str(spec)) == spec


def test_arguments_with_an_open_quote_are_refused() -> None:
    with pytest.raises(ModeError, match="a quote is not closed"):
        parse_mode("cpu,args+=--name 'a")


def test_mark_step_is_read_for_the_bases_that_have_it() -> None:
    assert parse_mode("lazy,mark_step=step").mark_step == parse_mode("xla,mark_step=step").mark_step == "step"


def test_name_and_base() -> None:
    assert parse_mode(" cpu ") == ModeSpec(name="cpu", base="cpu")
    assert parse_mode("bad = cpu,env.FAULT=1") == ModeSpec(name="bad", base="cpu", env={"FAULT": "1"})


@pytest.mark.parametrize(
    ("text", "part", "said"),
    [
        ("", "", "no base is given; the form is [NAME=]BASE[,KEY=VALUE]..."),
        ("x=", "x=", "no base is given"),
        (",threads=1", "", "no base is given"),
        ("comple", "comple", "there is no mode 'comple'; did you mean 'compile'?"),
        ("a=b=cpu", "b=cpu", "there is no mode 'b=cpu'; did you mean 'cpu'?"),
        ("CPU", "CPU", "there is no mode 'CPU'; known: compile, cpu, cuda"),
        ("../up=cpu", "../up", "'../up' is not a valid name"),
        (".=cpu", ".", "'.' is not a valid name"),
        ("=cpu", "", "'' is not a valid name"),
        ("cpu,thread=2", "thread", "there is no key 'thread'; did you mean 'threads'?"),
        ("cpu,envs.A=2", "envs.A", "there is no key 'envs.A'; did you mean 'env.<NAME>'?"),
        ("cpu,env=2", "env", "there is no key 'env'; known: "),
        ("cpu,threads", "threads", "'threads' is not KEY=VALUE"),
        ("cpu,", "", "'' is not KEY=VALUE"),
        ("cpu,threads=0", "threads=0", "threads='0': a whole number of at least 1 is needed"),
        ("cpu,threads=two", "threads=two", "a whole number of at least 1 is needed"),
        ("cpu,seed=-1", "seed=-1", "a whole number of at least 0 is needed"),
        ("cpu,timeout=0", "timeout=0", "a positive number of seconds is needed"),
        ("cpu,timeout=nan", "timeout=nan", "a positive number of seconds is needed"),
        ("cpu,timeout=inf", "timeout=inf", "a positive number of seconds is needed"),
        ("cpu,timeout=soon", "timeout=soon", "a positive number of seconds is needed"),
        ("cpu,device=", "device=", "a value is needed"),
        ("cpu,dtype=float46", "dtype=float46", "did you mean 'float64'?"),
        ("compile,contract=fats", "contract=fats", "did you mean 'fast'?"),
        ("lazy,mark_step=steps", "mark_step=steps", "did you mean 'step'?"),
        ("compile,decompose.tanh=on", "decompose.tanh=on", "known: off"),
        ("cpu,backend=inductor", "backend", "key 'backend' belongs to compile, not to cpu"),
        ("lazy,fallback_random=on", "fallback_random", "belongs to compile and xla, not to lazy"),
        ("compile,fallback_random=yes", "fallback_random=yes", "known: off, on"),
        ("lazy,decompose.tanh=off", "decompose.tanh", "belongs to compile, not to lazy"),
        ("compile,execute=op", "execute", "key 'execute' belongs to lazy and xla, not to compile"),
        ("lazy,execute=ops", "execute=ops", "did you mean 'op'?"),
        ("cpu,mark_step=off", "mark_step", "key 'mark_step' belongs to lazy and xla, not to cpu"),
        ("cpu,seed=1,seed=1", "seed", "key 'seed' is given twice"),
        ("cpu,env.A=1,env.A=2", "env.A", "key 'env.A' is given twice"),
        ("cpu,env.=1", "env.", "'env.' lacks a name; write env.NAME=VALUE"),
        ("cpu,env.1A=1", "env.1A", "lacks a name"),
    ],
)
def test_refusal_names_the_part_and_the_remedy(text: str, part: str, said: str) -> None:
    with pytest.raises(ModeError) as raised:
        parse_mode(text)
    assert said in str(raised.value) and str(raised.value).startswith(f"mode {text!r}: ")
    assert (raised.value.spec, raised.value.part, raised.value.exit_code) == (text, part, 2)
    assert "\n" not in str(raised.value)


def test_listed_modes_come_before_single_ones() -> None:
    specs = parse_modes("cpu, lazy", ["fast=compile,contract=fast", "bad=cpu,env.FAULT=1"])
    assert [spec.name for spec in specs] == ["cpu", "lazy", "fast", "bad"]
    assert [spec.name for spec in parse_modes(None, ["lazy"])] == ["lazy"]


@pytest.mark.parametrize(
    ("listed", "single", "said"),
    [
        (None, [], "no mode is named"),
        ("", [], "has an empty entry"),
        ("cpu,,lazy", [], "has an empty entry"),
        ("cpu,cpu", [], "two modes are named 'cpu': rename one"),
        ("cpu", ["cpu=lazy"], "two modes are named 'cpu': rename one, as in --mode \"other=lazy,...\""),
        ("cpu,layz", [], "did you mean 'lazy'?"),
    ],
)
def test_lists_that_make_no_sense(listed: str | None, single: list[str], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_modes(listed, single)
    assert said in str(raised.value) and raised.value.exit_code == 2
