"""The words of a script's arguments in the mode grammar.

b=cpu,args+=--accum 4                       two more arguments: --accum and 4
b=cpu,args=--names a,b --lr 0.1,threads=1   a comma ends the arguments only if KEY= of a mode follows
b=cpu,args+='seed=1,threads=2'              quotes as in a shell keep commas, keys and spaces together
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

ARGS, MORE_ARGS = "args", "args+"
"""The keys that replace the script's arguments, and that add to them."""


def words_of(text: str) -> str:
    """Check that a shell could split the text into words, and return it. Raises ValueError."""
    try:
        shlex.split(text)
    except ValueError:
        raise ValueError("a quote is not closed") from None
    return text


def split_pairs(text: str, is_key: Callable[[str], bool]) -> list[str]:
    """Split a mode at its commas, except at those that belong to the arguments of its script."""
    pairs = list[str]()
    for part in text.split(","):
        key, equals, _ = part.partition("=")
        if pairs and _takes(pairs[-1], begins_pair=bool(equals) and is_key(key.strip())):
            pairs[-1] += f",{part}"
        else:
            pairs.append(part)
    return pairs


def _takes(pair: str, *, begins_pair: bool) -> bool:
    """Check whether the pair takes the text after the next comma, too."""
    key, equals, value = pair.partition("=")
    if not equals or key.strip() not in (ARGS, MORE_ARGS):
        return False
    try:
        shlex.split(value)
    except ValueError:  # within quotes
        return True
    return not begins_pair


def arguments_of(common: Sequence[str], replaced: str | None, added: str | None) -> tuple[str, ...]:
    """Return the arguments of a mode's script, from those `common` to all modes and the mode's own."""
    words = common if replaced is None else shlex.split(replaced)
    return (*words, *shlex.split(added or ""))
