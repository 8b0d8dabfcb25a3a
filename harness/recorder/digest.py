"""stub"""

import hashlib

from .digest_record import R
from .journal import bytes_of


class Digester:
    implementation = "torch"
    reason = "stub"

    def digest(self, ts):
        return b"".join(
            R.pack(
                int.from_bytes(hashlib.blake2b(bytes(bytes_of(t)), digest_size=8).digest(), "little"),
                t.numel(),
                0,
                0,
                0.0,
                0.0,
                0.0,
                0.0,
            )
            for t in ts
        )
