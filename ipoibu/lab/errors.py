# SPDX-License-Identifier: BSD-2-Clause
"""The error that all kinds of labs raise."""

from __future__ import annotations

from ipoibu.base.errors import IpoibuError


class LabError(IpoibuError):
    """A part of the lab did not come up, or ended."""
