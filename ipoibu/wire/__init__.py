# SPDX-License-Identifier: BSD-2-Clause
"""Codecs, one file per header, from bytes to frozen values and back.

Functions that read a peer's bytes end in `_untrusted`: they check the length first, and raise nothing but
`BadFrame`. Each codec lists its reasons in `REASONS`; these are the names of drop counters. `pack` is
strict: its values come from this program, so a value that does not fit its field is the caller's mistake
(`ValueError`, or `struct.error` for a plain number).
"""

from __future__ import annotations

Octets = bytes | bytearray | memoryview
"""The bytes that a codec reads. The parsed value keeps copies: the caller may reuse the buffer at once."""
