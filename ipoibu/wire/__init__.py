# SPDX-License-Identifier: BSD-2-Clause
"""Codecs, one file per header, from bytes to frozen values and back.

Functions that read a peer's bytes end in `_untrusted`: they check the length first and let nothing
but `BadFrame` escape. Each codec lists its reasons in `REASONS`; those are drop counters' names.
`pack` is strict: what it is given comes from this program, so a value that does not fit its field
is the caller's mistake (`ValueError`, or `struct.error` for a plain number).
"""

from __future__ import annotations

Octets = bytes | bytearray | memoryview
"""What a codec reads. The parsed value keeps copies: the buffer may be reused at once."""
