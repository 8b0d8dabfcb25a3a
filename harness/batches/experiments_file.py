"""Experiments in a TOML file. Each is investigated with all combinations of its values, and each combination is a task.

    [defaults]
    modes = "cpu,compile"
    max_steps = 50

    [[experiments]]
    name = "sam"
    script = "reproducers/sam_tanh.py"
    modes = ["cpu,compile", "cpu,lazy"]
    arguments = { short = "--epochs 5", long = "--epochs 50" }
    kernels = { own = "", bf16 = "tanh_backward=bf16" }
    seeds = [0, 1]

This file has 2 x 2 x 2 x 2 tasks; the name of one is `sam-cpu-lazy-bf16-seed1-short`.

The axes are `script`, `modes`, `kernels`, `seeds` and `arguments`. A single value is one value, a list is several, and
a table is several with names of their own.

    script     a script, or `module` in its place
    modes      modes that are compared, the reference first: "cpu,compile,lazy", or with their settings and spaces
               between them "cpu fma=cpu,kernel.tanh_backward=fma", or "@FILE"
    kernels    OP=KERNEL, swapped into all modes but the reference
    seeds      the seed of torch's generator in all modes; a script's own seed is kept
    arguments  the words of the script's arguments

`processors`, `memory` and `devices` are what a task needs of its machine. All other keys are options of
`numdrift investigate`. `defaults` are values of experiments that do not state them. Paths are relative to the file,
whose folder is the working folder of the tasks.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..engines.engine_task import TaskResources
from ..engines.task_needs import NEEDS, read_needs
from ..errors import NumdriftError, UsageError, nearest
from ..investigate.experiments.investigation_plan import InvestigationRequest, compared_modes
from ..launch.batch_kernels import check_kernels
from ..launch.batch_plan import check_script, script_sha256
from ..records.modes.mode_spec import ModeSpec, parse_mode, parse_modes
from ..records.results.task_table import PlannedTask
from ..records.run.user_option import UserOption, option_words
from ..records.toml_file import read_toml
from ..runs.run_layout import check_name

AXES = ("script", "modes", "kernels", "seeds", "arguments")
"""The keys whose values are combined, in the order of the words of a task's name."""

OPTIONS = (
    *("steps", "envelope", "state_budget", "graphs", "nproc", "against_single", "max_steps", "max_seconds"),
    *("keep_files", "in_place", "timeout", "localize", "budget", "scripts", "confirm", "knobs", "partition_bisect"),
    *("poison", "strict"),
)
"""The options of `numdrift investigate` that an experiment may state."""

KEYS = ("name", "module", *AXES, *NEEDS, *OPTIONS)

LONGEST_LABEL = 40


@dataclass(frozen=True, slots=True)
class ExperimentTask:
    """A task of the file.

    words: the words of its `numdrift investigate`, without those of its folder
    script, script_sha256: its script and the version of it, None and "" for a module
    """

    plan: PlannedTask
    words: Sequence[str]
    resources: TaskResources
    script: Path | None = None
    script_sha256: str = ""


def tasks_of_file(path: Path) -> list[ExperimentTask]:
    """Return the tasks of a file in its order. Raises UsageError for whatever in it cannot be investigated."""
    content = read_toml(path)
    _require_known(path, "the file", content, ("defaults", "experiments"))
    defaults, experiments = content.get("defaults", {}), content.get("experiments", [])
    if not isinstance(defaults, Mapping) or not isinstance(experiments, list) or not experiments:
        raise UsageError(f'{path} has no experiment; write [[experiments]] with script = "train.py", for example')
    tasks = list[ExperimentTask]()
    for number, stated in enumerate(experiments, 1):
        where = f"experiment {stated.get('name', number)}" if isinstance(stated, Mapping) else f"experiment {number}"
        if not isinstance(stated, Mapping):
            raise UsageError(f"{path}: {where} is not a table; write [[experiments]]")
        for name, keys in (("defaults", defaults), (where, stated)):
            _require_known(path, name, keys, KEYS)
        try:
            tasks += _tasks_of({**defaults, **stated}, path.parent.resolve())
        except (NumdriftError, TypeError) as error:
            raise UsageError(f"{path}: {where}: {error}") from None
    names = [task.plan.name for task in tasks]
    if len(set(names)) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise UsageError(
            f"{path} has two tasks named {twice!r}; name the experiments, or the values of an axis with a table, as in "
            'arguments = { short = "--epochs 5", long = "--epochs 50" }'
        )
    return tasks


def _require_known(path: Path, name: str, keys: Mapping[str, Any], allowed: Sequence[str]) -> None:
    for key in keys:
        if key not in allowed:
            raise UsageError(f"{path}: {name} has an unknown key {key!r}; {nearest(key, allowed)}")


def _tasks_of(experiment: Mapping[str, Any], folder: Path) -> Iterator[ExperimentTask]:
    """Yield the tasks of an experiment: one for each combination of the values of its axes. Raises UsageError."""
    module = experiment.get("module")
    if (module is None) == ("script" not in experiment):
        raise UsageError("an experiment has either a script or a module")
    stated = experiment.get("name", "")
    options = _options(experiment)
    axes = {axis: _values(axis, experiment[axis]) for axis in AXES if axis in experiment}
    for chosen in itertools.product(*axes.values()):
        values = {axis: value for axis, (_, value) in zip(axes, chosen, strict=True)}
        labels = {axis: label for axis, (label, _) in zip(axes, chosen, strict=True) if label}
        script = None if module is not None else str(_one_word(values["script"], "script"))
        unnamed = "" if "script" in labels else Path(script or str(module).rpartition(".")[2]).stem
        name = "-".join([*filter(None, [stated or unnamed]), *labels.values()])
        check_name("the name", name)
        specs = _modes(values, folder)
        arguments = _words(values.get("arguments", ""))
        version = "" if script is None else _checked_script(folder / script)
        needs = read_needs(experiment, devices=int(any(spec.accelerator is not None for spec in specs)))
        # raises an error for options that an investigation refuses
        InvestigationRequest.of(script, specs, arguments, {option.name: value for option, value in options})
        plan = PlannedTask(
            name, stated or unnamed, script or f"-m {module}", [str(spec) for spec in specs],
            [spec.name for spec in specs], arguments, labels,
        )  # fmt: skip
        words = ["-m", str(module)] if script is None else [script]
        words += [word for spec in specs for word in ("--mode", str(spec))]
        words += ["--jobs", str(needs.processors), *option_words(options)]
        words += ["--", *arguments] if arguments else []
        yield ExperimentTask(plan, words, needs, None if script is None else Path(script), version)


def _checked_script(script: Path) -> str:
    """Check that a script can be trained, and return its digest. Raises UsageError."""
    check_script(script)
    return script_sha256(script)


def _values(axis: str, stated: Any) -> list[tuple[str, Any]]:
    """Return the values of an axis with their labels. A single value has no label. Raises UsageError."""
    if isinstance(stated, Mapping):
        pairs = [(check_name(f"the name of {axis}", label), value) for label, value in stated.items()]
    elif isinstance(stated, list):
        pairs = [(_label(axis, value), value) for value in stated]
    else:
        pairs = [("", stated)]
    if not pairs:
        raise UsageError(f"{axis} is empty; state a value, or leave it out")
    for label, value in pairs:
        wanted = int if axis == "seeds" else (str, list)
        if not isinstance(value, wanted) or isinstance(value, bool):
            kind = "a whole number" if axis == "seeds" else "a text"
            name = f"{axis}.{label}" if isinstance(stated, Mapping) else axis
            raise UsageError(f"{name} = {value!r} is not {kind}")
    return pairs


def _label(axis: str, value: Any) -> str:
    """Return the word of a task's name that names a value of a list.

    >>> _label("arguments", "--epochs 5"), _label("seeds", 3), _label("script", "all/sam.py"), _label("kernels", "")
    ('epochs-5', 'seed3', 'sam', 'none')
    """
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = {"seeds": f"seed{text}", "script": Path(text).stem}.get(axis, text)
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-.")[:LONGEST_LABEL].strip("-.") or "none"


def _words(value: Any) -> list[str]:
    """Return the words of a value: those of a shell for a text, and the items of a list."""
    try:
        return shlex.split(value) if isinstance(value, str) else [str(item) for item in value]
    except ValueError:
        raise UsageError(f"{value!r}: a quote is not closed") from None


def _one_word(value: Any, axis: str) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{axis} = {value!r} is not a text")
    return value


def _modes(values: Mapping[str, Any], folder: Path) -> list[ModeSpec]:
    """Return the modes of a task with its seed, and with its kernels in all but the reference. Raises UsageError."""
    words = _words(values.get("modes", "cpu,compile"))
    words = [f"@{folder / word[1:]}" if word.startswith("@") else word for word in words]
    is_list = len(words) == 1 and not words[0].startswith("@")
    specs = parse_modes(words[0]) if is_list else parse_modes(None, words)
    if len(specs) < 2:
        pair = f"cpu,{'compile' if specs[0].name == 'cpu' else specs[0].name}"
        raise UsageError(
            f'modes = "{" ".join(words)}" compares nothing; write "{pair}", or a list of such texts for several tasks'
        )
    if (seed := values.get("seeds")) is not None:
        specs = [replace(spec, seed=seed) for spec in specs]
    for word in _words(values.get("kernels", "")):
        op, equals, kernel = word.partition("=")
        if not (op and equals and kernel):
            raise UsageError(f'kernels: {word!r} is not OP=KERNEL, as in "tanh_backward=bf16"')
        key = op.removeprefix("kernel.")
        specs = [specs[0], *(replace(spec, kernel={**spec.kernel, key: kernel}) for spec in specs[1:])]
    specs = [parse_mode(str(spec)) for spec in specs]  # refuses what the keys together do not allow
    check_kernels(compared_modes(specs), (), ())
    return specs


def _options(experiment: Mapping[str, Any]) -> list[tuple[UserOption, Any]]:
    """Return the stated options of `numdrift investigate` with their values. Raises UsageError."""
    declared = InvestigationRequest.options()
    chosen = []
    for name in OPTIONS:
        if name in experiment:
            option, value = declared[name], experiment[name]
            numbers: dict[type, tuple[type, ...]] = {bool: (bool,), int: (int,), float: (int, float)}
            kinds = numbers.get(option.kind, (str, int, float))
            if not isinstance(value, kinds) or (isinstance(value, bool) and option.kind is not bool):
                raise UsageError(f"{name} = {value!r} has the wrong type; see `numdrift investigate --help`")
            if option.choices and value not in option.choices:
                raise UsageError(f"{name} = {value!r}; {nearest(str(value), option.choices)}")
            text = option.kind is str
            chosen.append((option, str(value) if text else value))
    return chosen
