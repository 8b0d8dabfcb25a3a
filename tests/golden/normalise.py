"""What of an investigation must stay as it is, and what may be otherwise the next time or on another machine.

Dropped always, because two runs in a row differ in it:
- durations: `seconds` in JSON; in text `7.3 s`, `1.2 s/step`, `4.0 steps/s`
- the lines of progress (`cpu: step 2  loss ...`) and where the title of what was understood of a script falls between
  them: they come every few seconds, and so more or fewer on a busy machine
- the folder: paths are said from the folder that the investigation ran in, those of installed packages from there on,
  of other absolute paths the last part is left
JSON holds nothing of the environment (versions, host, process ids): that stands in the runs' own files, which are not
read.

Dropped unless `exact`, because they hang on the processor and the version of torch:
- floats: one significant digit is left, and `differences` lets them be ten times larger or smaller. 0 stays 0. There
  are not borders as between classes of magnitude, at which a last bit decides
- the sign and the size of `bias` (a number of standard deviations), which is any normal number for a right kernel
- the names of a culprit's `kernel`: `aten` is said of a mode whose kernel has the very bits of torch's own
- where rounding peaks: `max_absolute_step`, `max_relative_step`, `worst_step` and `lead`, the number of a block; and how
  sure the referee is: `values`, `median` and `significance`. What it says stays
- of a step's `tensors` the order, the distances and the names of those within rounding; the fields and the names beyond
  the threshold stay. The worst `tensor` of a step, in the verdict's sentence too, stays where it is beyond the threshold
- which step is localized where none of several is beyond the threshold
- the `module` of a culprit that acts in several: `places` has them all. Of one within rounding also its line (of which
  the text has only those of culprits in one place) and the number of its `sites`
- the order, the share and the script's number of culprits that carry less than half of the drift each: they are sorted
- numbers that stand alone in sentences, which become `#`. Those in names (`layers.3`, `bf16`, `train.py:111`) stay
- how the columns of a table are filled with blanks

Verdicts, steps, ops, modules, phases, kinds, lines, proofs, swaps, counts of runs and every word stay. They are the
same on every processor as far as `cases.SAME_BITS` makes its bits the same. In exact mode the numbers stay too, which
only one machine with one torch can promise.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .cases import Case, Said

FACTOR = 10.0
"""How many times larger or smaller a float may be."""

HALF = 0.5
"""Share of the drift from which on a culprit keeps its place in the order."""

ANY = "#"
TIMES = {"seconds"}
PEAKS = {"max_absolute_step", "max_relative_step", "worst_step", "lead"}
SURE = {"values", "median", "significance"}
SENTENCES = {"text", "notes", "noise", "undecided", "why", "output", "reasons", "message", "remedy"}

SPEED = re.compile(r"  [\d,.]+ (?:steps/s|s/step)")
SECONDS = re.compile(r"(?<![\w.])[\d,.]+ s\b")
PROGRESS = re.compile(r"^[\w-]+(?: rank \d+)?: step [\d,]+  ")
UNDERSTOOD = re.compile(r"^([\w-]+) (?:understood the script as follows|also):$")
PACKAGES = re.compile(r"/[^\s'\",;:()]*/(?:site|dist)-packages/")
ABSOLUTE = re.compile(r"(?<![\w.~-])/(?:[\w.+-]+/)+(?=[\w.+-])")
NUMBER = re.compile(r"(?<![\w.:])\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")
WORST = re.compile(r"\([^();]*, step [\d,]+(?=; [\d.]+ would be a fault\))")
BLANKS = re.compile(r"(?<=\S) {2,}")
CULPRIT = re.compile(r"^  \d+\. ")
SEVERAL_PLACES = re.compile(r"^(  \d+\. .* of [^,]+, .*, [^ ]+):\d+(?= \()")
LINE = re.compile(r":\d+$")
SHARE = re.compile(r"\((\d+) % of the drift\)$")


def normalised(said: Said, *, exact: bool = False) -> dict[str, Any]:
    """The exit code and the content of `investigation.json`, without what may vary."""
    content = _value(said.content, "", said.folder, exact)
    if not exact:
        for pair, whole in zip(content.get("pairs", ()), said.content.get("pairs", ()), strict=True):
            _pair(pair, whole)
    return {"exit_code": said.exit_code, "investigation": content}


def normalised_text(case: Case, said: Said, *, exact: bool = False) -> str:
    """The command, standard output and standard error, without what may vary."""
    asked = " ".join(case.command()[3:])
    parts = [f"$ numdrift {asked}", *_lines(said.stdout, said.folder), "", "standard error:"]
    lines = [*parts, *_without_progress(_lines(said.stderr, said.folder))]
    if not exact:
        lines = [BLANKS.sub("  ", _sentence(line)) for line in _in_order(lines[1:])]
        lines.insert(0, parts[0])
    return "\n".join(line.rstrip() for line in lines) + "\n"


def as_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def differences(expected: Any, found: Any, place: str = "") -> list[str]:
    """A line for each place where two normalised contents differ; floats may be `FACTOR` times apart."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        return list(_different_fields(expected, found, place))
    if isinstance(expected, list) and isinstance(found, list):
        lines = [
            line
            for index, (one, other) in enumerate(zip(expected, found, strict=False))
            for line in differences(one, other, f"{place}[{index}]")
        ]
        if len(expected) != len(found):
            lines.insert(0, f"{place}: were {len(expected)}, are {len(found)}")
        lines += [f"{place}: is gone: {_short(one)}" for one in expected[len(found) :]]
        return lines + [f"{place}: is new: {_short(one)}" for one in found[len(expected) :]]
    return [] if _agree(expected, found) else [f"{place}: was {_short(expected)}, is {_short(found)}"]


def text_differences(expected: str, found: str) -> list[str]:
    """The lines in which two normalised texts differ, with their neighbours."""
    return list(difflib.unified_diff(expected.splitlines(), found.splitlines(), "was", "is", lineterm=""))


def _different_fields(expected: Mapping[str, Any], found: Mapping[str, Any], place: str) -> Iterator[str]:
    for key in sorted(expected.keys() | found.keys()):
        where = f"{place}.{key}" if place else key
        if key not in found:
            yield f"{where}: is gone, was {_short(expected[key])}"
        elif key not in expected:
            yield f"{where}: is new: {_short(found[key])}"
        else:
            yield from differences(expected[key], found[key], where)


def _agree(expected: Any, found: Any) -> bool:
    """Whether two plain values are the same; a count and a float are not, even where they are equal."""
    if type(expected) is not type(found):
        return False
    if not isinstance(expected, float) or expected == found:
        return bool(expected == found)
    ratio = found / expected if expected else 0.0
    return 1 / FACTOR <= ratio <= FACTOR


def _short(value: Any) -> str:
    said = json.dumps(value, ensure_ascii=False)
    return said if len(said) <= 200 else f"{said[:200]}..."


def _value(value: Any, key: str, folder: Path, exact: bool) -> Any:
    if isinstance(value, Mapping):
        return {one: _value(inner, one, folder, exact) for one, inner in value.items() if one not in TIMES}
    if isinstance(value, list):
        return [_value(inner, key, folder, exact) for inner in value]
    if isinstance(value, str):
        text = _without_places(value, folder)
        return _sentence(text) if key in SENTENCES and not exact else text
    if exact or value is None or isinstance(value, bool):
        return value
    if key in PEAKS:
        return ANY
    return float(f"{value:.1g}") if isinstance(value, float) else value


def _pair(pair: dict[str, Any], whole: Mapping[str, Any]) -> None:
    """Drop in place what rounding decides; `whole` is the pair with all its digits."""
    threshold = whole.get("threshold") or 0.0
    for step, measured in zip(pair.get("steps", ()), whole.get("steps", ()), strict=True):
        tensors = measured.get("tensors", ())
        step["tensors"] = {
            "beyond": sorted(one["name"] for one in tensors if _beyond(one.get("score"), threshold)),
            "fields": sorted({field for one in tensors for field in one}),
        }
        if not _beyond(measured.get("score"), threshold):
            step["tensor"] = ANY
    for key in SURE & set(pair.get("referee") or ()):
        pair["referee"][key] = ANY
    chosen = len(whole.get("steps", ())) > 1 and not _beyond(whole.get("score"), threshold)
    culprits = pair.get("culprits", [])
    for culprit in culprits:
        _culprit(culprit, step_is_chosen=chosen)
    carrying = [one for one in culprits if _share(one) >= HALF]
    others = [one for one in culprits if _share(one) < HALF]
    for culprit in others:
        if culprit.get("share_of_drift") is not None:
            culprit["share_of_drift"] = ANY
        _without_numbers(culprit.get("script"), "path")
    others.sort(key=lambda one: [str(one.get(key)) for key in ("kind", "op", "phase", "source", "places")])
    culprits[:] = carrying + others


def _culprit(culprit: dict[str, Any], *, step_is_chosen: bool) -> None:
    culprit.pop("kernel", None)
    if "bias" in culprit:
        culprit["bias"] = dict.fromkeys(culprit["bias"], ANY)
    if step_is_chosen:
        culprit["step"] = ANY
        _without_numbers(culprit, "command")
        _without_numbers(culprit.get("script"), "path")
    if len(culprit.get("places", ())) > 1:
        culprit["module"] = ANY
        if culprit.get("significance") == "rounding":
            culprit["sites"] = ANY
            if culprit.get("source"):
                culprit["source"] = LINE.sub(f":{ANY}", culprit["source"])


def _share(culprit: Mapping[str, Any]) -> float:
    return float(culprit.get("share_of_drift") or 0)


def _without_numbers(content: dict[str, Any] | None, key: str) -> None:
    if content and content.get(key):
        content[key] = NUMBER.sub(ANY, content[key])


def _beyond(score: float | str | None, threshold: float) -> bool:
    return score == "inf" or (isinstance(score, float) and score > threshold)


def _lines(text: str, folder: Path) -> list[str]:
    return [SECONDS.sub(f"{ANY} s", SPEED.sub("", line)) for line in _without_places(text, folder).splitlines()]


def _without_places(text: str, folder: Path) -> str:
    for own in dict.fromkeys((str(folder), str(folder.resolve()))):
        text = text.replace(f"{own}/", "").replace(own, ".")
    return ABSOLUTE.sub("<elsewhere>/", PACKAGES.sub("<packages>/", text))


def _without_progress(lines: Sequence[str]) -> Iterator[str]:
    """The lines that come however long the runs take. A title is said once where its block came in pieces."""
    title = None
    for line in lines:
        if PROGRESS.match(line):
            continue
        found = UNDERSTOOD.match(line)
        if found and title == found[1]:
            continue
        if found:
            title = found[1]
        elif not line.startswith("  "):
            title = None
        yield line


def _in_order(lines: Sequence[str]) -> list[str]:
    """The lines with the culprits of less than half of the drift sorted, each with what is indented under it."""
    ordered, small = list[str](), list[list[str]]()
    for line in lines:
        share = SHARE.search(line)
        if CULPRIT.match(line) and share and int(share[1]) < 100 * HALF:
            small.append([line])
        elif small and line.startswith("     "):
            small[-1].append(line)
        else:
            ordered += [one for block in sorted(small, key=_words) for one in block]
            small = []
            ordered.append(line)
    return ordered + [one for block in sorted(small, key=_words) for one in block]


def _words(block: Sequence[str]) -> list[str]:
    return [_sentence(line) for line in block]


def _sentence(text: str) -> str:
    """The words without their numbers, without the name of what differs most where that is rounding, and without the
    line of a culprit in several places."""
    return NUMBER.sub(ANY, SEVERAL_PLACES.sub(rf"\1:{ANY}", WORST.sub(f"({ANY}", text)))
