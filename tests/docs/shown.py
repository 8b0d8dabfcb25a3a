"""What the pages show: the command lines that a user would type, and the blocks of code."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"\s*```(\S*)")
OF_A_SHELL = ("console", "bash")


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced block of a page, with the heading that it stands under and the number of its first line."""

    page: str
    section: str
    language: str
    line: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


@dataclass(frozen=True, slots=True)
class ShownCommand:
    """A command line as it is typed, without the prompt and without a comment behind it."""

    page: str
    line: int
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_ours(self) -> bool:
        return self.text.startswith("numdrift ")

    @property
    def arguments(self) -> list[str]:
        """What numdrift is given: without its own name, and without where the shell puts its output."""
        words = shlex.split(self.text)[1:]
        return words[: words.index(">")] if ">" in words else words

    @property
    def redirected(self) -> str | None:
        """The file that the shell writes the output to."""
        words = shlex.split(self.text)
        return words[words.index(">") + 1] if ">" in words else None


def fences(path: Path) -> Iterator[Fence]:
    page, inside, first, lines = path.relative_to(ROOT).as_posix(), None, 0, list[str]()
    section = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        mark = FENCE.match(line)
        if mark and inside is None:
            inside, first, lines = mark[1], number + 1, []
        elif mark and inside is not None:
            yield Fence(page, section, inside, first, tuple(lines))
            inside = None
        elif inside is None:
            section = line.removeprefix("## ") if line.startswith("## ") else section
        else:
            lines.append(line)


def commands_in(fence: Fence) -> Iterator[ShownCommand]:
    """Those behind a prompt; of a shell script every line, and of any block the lines that call numdrift."""
    prompted = any(line.startswith("$ ") for line in fence.lines)
    for number, line in enumerate(fence.lines, fence.line):
        typed = line.removeprefix("$ ").strip()
        if line.startswith("$ ") or re.match(r"numdrift [a-z]+( |$)", typed) or fence.language == "bash":
            text = re.split(r"\s+#", typed)[0]
            if text and not (prompted and not line.startswith("$ ")):
                yield ShownCommand(fence.page, number, text)


def shown_commands() -> list[ShownCommand]:
    return [one for path in PAGES for fence in fences(path) for one in commands_in(fence)]


def commands_at(place: str) -> list[ShownCommand]:
    """Those of a page, or of one section of it: `docs/reference/commands.md#numdrift run`."""
    page, _, section = place.partition("#")
    found = [one for fence in fences(ROOT / page) if section in ("", fence.section) for one in commands_in(fence)]
    if not found:
        raise LookupError(f"{place} shows no command")
    return found


def blocks(page: str, language: str) -> list[Fence]:
    return [fence for fence in fences(ROOT / page) if fence.language == language]


def spoken_of() -> Iterator[ShownCommand]:
    """Commands within a sentence: `numdrift localize RUN_A RUN_B [--step N]`."""
    for path in PAGES:
        fenced = {number for fence in fences(path) for number in range(fence.line, fence.line + len(fence.lines))}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if number not in fenced:
                for text in re.findall(r"`(numdrift [a-z][^`]*)`", line):
                    yield ShownCommand(path.relative_to(ROOT).as_posix(), number, text)
