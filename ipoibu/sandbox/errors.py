# SPDX-License-Identifier: BSD-2-Clause
"""The error of a stage that this machine cannot carry out."""

from __future__ import annotations


class Unavailable(Exception):
    """The kernel or a library lacks a feature that a stage needs; the text names it."""
