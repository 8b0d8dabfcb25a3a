"""Values that an earlier file of the same investigation has: they are not written a second time.

A training that is repeated leaves the same states, and its tape begins with one of them. The earlier file is linked
into the folder of the new one, and the new file's facts say where each value is:

    cpu/states/state-000001.safetensors                       parameter w, state w.exp_avg
    evidence/cpu-again/outcomes/earlier-81203.safetensors     the same file, by a hard link
    evidence/cpu-again/outcomes/outcome-000000.safetensors    loss 0, and {"elsewhere": {"parameter w": [...], ...}}

So nothing is lost if the earlier run is removed or replaced. Where the file system has no hard links, values are
written again.
"""

from __future__ import annotations

import ctypes
import filecmp
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ...errors import JournalError
from ...records.run.step_files import outcome_file, state_file
from ...records.values.tensor_layout import ALIGNMENT, TensorPlace, read_header
from ..large_values import give_back_pages, mapping_of, tensor_in
from .journal_writing import bytes_of

FEWEST_BYTES = 1 << 16
"""The number of bytes from which on a value is looked for in earlier files."""

FIRST_BYTES = 4096
"""The number of bytes that are compared first. Most values that differ do so early."""


def files_of_step(runs: Sequence[Path | str], step: int) -> list[Path]:
    """Return the files of these runs that may have values of a step: the states around it, and its outcome."""
    folders = map(Path, runs)
    files = (
        path for run in folders for path in (state_file(run, step), state_file(run, step + 1), outcome_file(run, step))
    )
    return [path for path in files if path.exists()]


def linked_values(
    folder: Path, tensors: Mapping[str, torch.Tensor], codes: Mapping[torch.dtype, str], earlier: Sequence[Path]
) -> dict[str, list[Any]]:
    """Find the tensors that earlier files have, bit for bit, unless they are small, and link the files into `folder`.

    `codes` has the file's name of each dtype. Return, by the tensor's name, the name of the linked file, the name of
    the value in it, and the tensor's own dtype and shape. A file that cannot be read or linked is not used.
    """
    wanted = {
        name: tensor
        for name, tensor in tensors.items()
        if tensor.is_cpu and tensor.layout == torch.strided and tensor.dtype in codes and tensor.nbytes >= FEWEST_BYTES
    }
    found: dict[str, list[Any]] = {}
    for path in earlier if wanted else ():
        # the values are written again, whatever fails here
        with suppress(OSError, JournalError, ValueError, RuntimeError), path.open("rb") as file:
            by_size: dict[int, list[TensorPlace]] = {}
            places, _ = read_header(path, file)
            for place in places:
                if not place.start % ALIGNMENT:  # kernels may compute other bits on memory that is not aligned
                    by_size.setdefault(place.size, []).append(place)
            mapping, link = None, ""
            for name, tensor in wanted.items():
                candidates = by_size.get(tensor.nbytes, ())
                if name in found or not candidates or not tensor.is_contiguous():
                    continue
                mapping = mapping or mapping_of(file.fileno(), 0, places[-1].end)
                for place in sorted(candidates, key=lambda candidate: candidate.name != name):
                    if _is_equal(tensor, tensor_in(mapping, place.start, torch.uint8, (tensor.nbytes,))):
                        link = link or _link(path, os.fstat(file.fileno()).st_ino, folder)
                        found[name] = [link, place.name, codes[tensor.dtype], list(tensor.shape)]
                        break
    return found


def _is_equal(tensor: torch.Tensor, earlier: torch.Tensor) -> bool:
    """Check whether a tensor has these bytes."""
    content = torch.frombuffer(bytes_of(tensor), dtype=torch.uint8)
    if ctypes.string_at(content.data_ptr(), FIRST_BYTES) != ctypes.string_at(earlier.data_ptr(), FIRST_BYTES):
        return False
    words = content.numel() // 8 * 8  # eight bytes at a time is eight times as fast
    is_equal = torch.equal(content[:words].view(torch.int64), earlier[:words].view(torch.int64))
    is_equal = is_equal and torch.equal(content[words:], earlier[words:])
    give_back_pages(earlier)
    give_back_pages(tensor)
    return is_equal


def _link(path: Path, inode: int, folder: Path) -> str:
    """Link a file into a folder and return the link's name.

    Raises OSError, also if the path is no longer that of the file with this inode, whose values were compared.
    """
    link = folder / f"earlier-{inode}.safetensors"
    with suppress(FileExistsError):
        os.link(path, link)
    if link.stat().st_ino != inode or link.stat().st_dev != path.stat().st_dev:
        raise OSError(f"{path} was replaced")
    return link.name


def link_if_equal(path: Path, earlier: Sequence[Path]) -> None:
    """Replace a file with a link to an earlier file that has the same bytes. Without one, or on failure, it stays."""
    for other in earlier:
        with suppress(OSError):
            if other.stat().st_size == path.stat().st_size and filecmp.cmp(other, path, shallow=False):
                temporary = path.with_name(f"{path.name}.part")
                os.link(other, temporary)
                temporary.replace(path)
                return
