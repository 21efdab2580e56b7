# SPDX-License-Identifier: BSD-2-Clause
"""The package's public names: complete, and loaded only when used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ipoibu


def test_every_public_name_is_there() -> None:
    for name in ipoibu.__all__:
        assert getattr(ipoibu, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Endpiont'"):
        _ = ipoibu.Endpiont


def test_the_c_core_is_not_loaded_before_it_is_needed() -> None:
    program = "import sys, ipoibu; print('ipoibu._core' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
