"""Where the part of a tensor that one rank holds lies in the whole: for the guest that writes it and for the readers,
so without torch.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shard:
    """Where a local tensor lies in the whole, of shape `whole`: it begins at `offset`, which is None where it is no
    plain block of it.

    `placements` has a word for each dimension of the device mesh, whose shape is `mesh` and in which this rank is
    `at`: `shard 0` (of the tensor's dimension 0), `replicate`, or `partial sum` (the whole is the sum of the parts).
    """

    whole: tuple[int, ...]
    offset: tuple[int, ...] | None
    placements: tuple[str, ...]
    mesh: tuple[int, ...]
    at: tuple[int, ...]

    @property
    def adds(self) -> bool:
        """Whether this rank's part counts where the parts are added up: of equal copies only the first one's does."""
        return all(place == 0 for place, word in zip(self.at, self.placements, strict=True) if word == "replicate")
