# SPDX-License-Identifier: BSD-2-Clause
"""A key that the hosts of a link share, on a byte stream; a profile of our own, docs/use/unicast.md.

Each side sends a nonce of 32 bytes. From the key and both nonces, each side makes one key for each
direction of this stream; every later frame ends in a tag:

    key of a direction = HMAC-SHA256(shared key, label of the direction | nonce of who dials | other nonce)
    tag = HMAC-SHA256(key of the direction, number of the frame 8 | header 4 | body)

So a right tag shows that the sender knows the shared key now: our nonce is in it. A frame that an
attacker changes, repeats, leaves out or sends back to its sender has a wrong tag.
"""

from __future__ import annotations

import enum
import hmac
from typing import Final

from ipoibu.base.errors import BadFrame

REASONS: Final = frozenset({"mesh_key_wrong", "mesh_key_missing", "mesh_nonce"})

KEY_LEN: Final = 32
NONCE_LEN: Final = 32
TAG_LEN: Final = 32
_DIALED: Final = b"ipoibu mesh 1: from the host that dials"
_ASKED: Final = b"ipoibu mesh 1: from the host that is asked"


class Denial(enum.IntEnum):
    """Why a host ends a stream before greetings: the body of a denial."""

    KEY_WANTED = 1  # we have a key, and you showed none
    KEY_UNKNOWN = 2  # you have a key, and we have none
    KEY_WRONG = 3

    @classmethod
    def read_untrusted(cls, body: bytes) -> Denial:
        try:
            return cls(int.from_bytes(body[:1]))
        except ValueError:
            raise BadFrame("mesh_nonce") from None


class Seal:
    """Makes and checks the tags of one stream; our first frame and the peer's have number 0."""

    def __init__(self, key: bytes, ours: bytes, theirs: bytes, *, is_ours: bool) -> None:
        """`is_ours`: we dialed."""
        nonces = ours + theirs if is_ours else theirs + ours
        dialed, asked = (hmac.digest(key, label + nonces, "sha256") for label in (_DIALED, _ASKED))
        self._tx, self._rx = (dialed, asked) if is_ours else (asked, dialed)
        self._sent = self._received = 0

    @property
    def has_received(self) -> bool:
        """Return whether the peer has shown that it knows the key."""
        return self._received > 0

    def tag(self, frame: bytes) -> bytes:
        """Return the tag of our next frame, which begins with its header."""
        tag = _tag(self._tx, self._sent, frame)
        self._sent += 1
        return tag

    def check_untrusted(self, frame: bytes, tag: bytes) -> None:
        """Check the tag of the peer's next frame, in constant time."""
        if not hmac.compare_digest(_tag(self._rx, self._received, frame), tag):
            raise BadFrame("mesh_key_wrong")
        self._received += 1


def _tag(key: bytes, number: int, frame: bytes) -> bytes:
    return hmac.digest(key, number.to_bytes(8) + frame, "sha256")


class KeyExchange:
    """Our half of the exchange of nonces on one stream: `ours` is a fresh nonce of 32 random bytes."""

    def __init__(self, key: bytes, ours: bytes, *, is_ours: bool) -> None:
        self.ours = ours
        self.seal: Seal | None = None
        self._key, self._is_ours = key, is_ours

    def hear_untrusted(self, theirs: bytes) -> None:
        """Take the peer's nonce; from here on every frame has a tag."""
        if len(theirs) != NONCE_LEN or theirs == self.ours:
            raise BadFrame("mesh_nonce")
        self.seal = Seal(self._key, self.ours, theirs, is_ours=self._is_ours)
