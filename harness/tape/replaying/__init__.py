"""Replays of a tape: as recorded, with random rounding, in double precision."""
