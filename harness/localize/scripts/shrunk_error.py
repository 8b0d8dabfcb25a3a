"""Shrinks a call that raises an error in one mode alone: fewer calls and ops, smaller shapes, simpler values.

    python -m numdrift.harness.localize.scripts.shrunk_error REQUEST.json

REQUEST names the file with the ops of the call (`script/calls/traced_call.py`), the modes, and their errors. Each trial
executes a whole script in a fork, and counts if the same side raises an error of the same class with the same first
line, except for its numbers.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ...errors import UsageError
from ...records.modes.mode_registry import registry
from ...records.modes.mode_spec import ModeSpec, parse_mode
from ...torch_private.compiler.inductor_start import load_inductor
from .error_script import ErrorScript, alike, outcome
from .script_ways import inductor_lines
from .shrunk_script import with_simpler_values, with_smaller_shapes

MOST_TRIALS, MOST_SECONDS = 200, 200.0
"""The largest number of trials, and the time after which no further one begins."""


@dataclass
class Trials:
    """Executes scripts, and says which ones still show the error. `expected` are the errors of both sides."""

    expected: tuple[str, str]
    trials: int = 0
    until: float = 0.0

    def shows(self, script: ErrorScript) -> bool:
        """Check whether a script raises the error. Return False once there were enough trials."""
        self.trials += 1
        if self.trials > MOST_TRIALS or time.monotonic() > self.until:
            return False
        found = outcome(script)
        return found is not None and tuple(map(alike, found)) == self.expected


@dataclass
class ErrorInputs:
    """The inputs of a script as values that can be shrunk."""

    script: ErrorScript
    trials: Trials

    def is_shown(self, values: Mapping[str, torch.Tensor]) -> bool:
        return self.trials.shows(self.script.with_values(values))


def first_script(request: Mapping[str, Any], trials: Trials) -> ErrorScript:
    """Return the plainest script that shows the error. Raises UsageError if none does."""
    calls = torch.load(request["traced"], weights_only=True)
    for graph in calls[-1]["graphs"]:
        of_others = [
            other["inputs"]
            for call in calls[:-1]
            for other in call["graphs"]
            if all(other[key] == graph[key] for key in ("body", "returns"))
            and list(other["inputs"]) == list(graph["inputs"])
        ]
        for script in _scripts(request, calls[-1], graph, of_others):
            if trials.shows(script):
                return script
    raise UsageError("the ops of the call do not raise this error without the script, so there is nothing to shrink")


def _scripts(
    request: Mapping[str, Any], call: Mapping[str, Any], graph: Mapping[str, Any], of_others: Sequence[Any]
) -> Iterator[ErrorScript]:
    """Yield scripts of a graph, the plainest first: without earlier calls, gradients, and what else is stated."""
    mode: ModeSpec = parse_mode(request["spec"])
    own = {"backend": mode.backend, "dynamic": None if mode.dynamic is None else mode.dynamic == "on"}
    stated = {name: value for name, value in own.items() if value not in (None, "inductor")}
    settings = inductor_lines(request["spec"]) if mode.capabilities.compiles else ()
    device = mode.accelerator or ""
    kind = device.partition(":")[0]
    module = registry.module_of(kind) if kind else ""
    differentiable = frozenset(name for name, value in graph["inputs"].items() if value.requires_grad and call["grad"])
    with_gradients = [(frozenset[str](), False), (differentiable, False), (differentiable, True)]
    for before in (0, 1, len(of_others)) if of_others else (0,):
        inputs = [*(of_others[-before:] if before else ()), graph["inputs"]]
        for gradients, backward in with_gradients if differentiable else with_gradients[:1]:
            plain = ErrorScript(
                heading=request["heading"],
                imports=[*graph["imports"], *([f"import {module}  # adds {kind} to torch"] if module else [])],
                settings=(),
                body=graph["body"],
                returns=graph["returns"],
                calls=[{name: value.detach() for name, value in of_call.items()} for of_call in inputs],
                gradients=gradients,
                backward=backward,
                under=(),
                compiled={} if mode.capabilities.compiles else None,
                device=device,
                labels=(request["labels"][0], request["labels"][1]),
            )
            yield plain
            whole = replace(
                plain,
                settings=["import torch._inductor.config", *settings] if settings else (),
                under=tuple(context for context in call["under"] if context),
                compiled={**call["compiled_with"], **stated} if plain.compiled is not None else None,
            )
            if whole != plain:
                yield whole


def shrunk(script: ErrorScript, trials: Trials) -> ErrorScript:
    """Return a smaller script that still shows the error."""
    script = _with_one_result(script, trials)
    script = _with_fewer_ops(script, trials)
    dense = replace(script, calls=[{name: value.contiguous() for name, value in call.items()} for call in script.calls])
    if any(not value.is_contiguous() for value in script.values().values()) and trials.shows(dense):
        script = dense
    # An error seldom depends on values. With constant ones, a script can list a tensor of any shape.
    script = script.with_values(with_simpler_values(ErrorInputs(script, trials), script.values()))
    script = script.with_values(with_smaller_shapes(ErrorInputs(script, trials), script.values()))
    plainer: list[Callable[[ErrorScript], ErrorScript]] = [
        partial(replace, settings=()),
        partial(replace, under=()),
        *(partial(_without_argument, name) for name in script.compiled or ()),
        *(partial(_without_gradient, name) for name in sorted(script.gradients)),
    ]
    for change in plainer:
        changed = change(script)
        if changed != script and trials.shows(changed):
            script = changed
    return script


def _without_argument(name: str, script: ErrorScript) -> ErrorScript:
    return replace(script, compiled={key: value for key, value in (script.compiled or {}).items() if key != name})


def _without_gradient(name: str, script: ErrorScript) -> ErrorScript:
    return replace(script, gradients=script.gradients - {name})


def _with_one_result(script: ErrorScript, trials: Trials) -> ErrorScript:
    """Return the script up to the first statement whose result alone shows the error."""
    targets = [(place, target) for place, line in enumerate(script.body) if (target := _target(line))]

    def up_to(choice: tuple[int, str]) -> ErrorScript:
        place, target = choice
        return replace(script, body=script.body[: place + 1], returns=[target])

    low, high = 0, len(targets) - 1
    best = script
    while low <= high:  # an error of an op is there in all that follows it
        middle = (low + high) // 2
        shorter = up_to(targets[middle])
        if trials.shows(shorter):
            best, high = shorter, middle - 1
        else:
            low = middle + 1
    return best


def _with_fewer_ops(script: ErrorScript, trials: Trials) -> ErrorScript:
    """Return the script without statements that are unused, or whose result can be an input."""
    for place in range(len(script.body) - 1, -1, -1):
        line, rest = script.body[place], [*script.body[:place], *script.body[place + 1 :]]
        target = _target(line)
        used = {name for later in script.body[place + 1 :] for name in _names(later)} | set(script.returns)
        changed = None
        if target is None or target not in used:
            changed = replace(script, body=rest)
        elif target not in script.returns:
            tried = [_with_value_of(script, call, place, target) for call in script.calls]
            made = [call for call in tried if call is not None]
            if len(made) == len(tried):
                changed = replace(script, body=rest, calls=made)
        if changed is not None and trials.shows(changed):
            script = changed
    used = {name for line in script.body for name in _names(line)} | set(script.returns)
    calls = [{name: value for name, value in call.items() if name in used} for call in script.calls]
    fewer = replace(script, calls=calls, gradients=script.gradients & used)
    return fewer if calls[0] and fewer.size != script.size and trials.shows(fewer) else script


def _with_value_of(
    script: ErrorScript, call: Mapping[str, torch.Tensor], place: int, target: str
) -> dict[str, torch.Tensor] | None:
    """Return the inputs of a call, with the value that a statement computes; None if that is no tensor."""
    scope: dict[str, Any] = {name: value.clone() for name, value in call.items()}
    try:
        with torch.no_grad():
            exec("\n".join([*script.imports, "import torch", *script.body[: place + 1]]), scope)  # noqa: S102
    except Exception:  # noqa: BLE001, then the statement stays
        return None
    value = scope.get(target)
    return {**call, target: value.detach()} if isinstance(value, torch.Tensor) else None


def _target(line: str) -> str | None:
    """Return the variable that a statement sets."""
    (statement,) = ast.parse(line).body
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return None


def _names(line: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Name)}


def main(argv: Sequence[str]) -> int:
    """Write the script that the request asks for, and print what was shrunk, or why there is none."""
    request = json.loads(Path(argv[0]).read_text(encoding="utf-8"))
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # a fork cannot use a pool of processes of this one
    if parse_mode(request["spec"]).capabilities.compiles:  # once for all forks
        load_inductor()
    expected = (alike(request["errors"][0]), alike(request["errors"][1]))
    trials = Trials(expected, until=time.monotonic() + MOST_SECONDS)
    try:
        original = first_script(request, trials)
        smaller = shrunk(original, trials)
        Path(request["target"]).write_text(smaller.text(), encoding="utf-8")
    except UsageError as error:
        print(error)
        return 2
    counts = zip(("call", "op", "element"), original.size, smaller.size, strict=True)
    changes = [
        f"{before} {name}{'' if before == 1 else 's'} to {after}" for name, before, after in counts if before != after
    ]
    print("; ".join([*changes, f"{trials.trials} trials"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
