# SPDX-License-Identifier: BSD-2-Clause
"""The setting that forbids a namespace is named."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ipoibu.base.errors import NotPermitted
from ipoibu.rootless.namespaces import refusal


def _settings(directory: Path, **values: int) -> Path:
    for name, value in {"max_user_namespaces": 5000, **values}.items():
        room = "user" if name.startswith("max") else "kernel"
        (directory / room).mkdir(exist_ok=True)
        (directory / room / name).write_text(f"{value}\n")
    return directory


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({"unprivileged_userns_clone": 0}, "sysctl -w kernel.unprivileged_userns_clone=1"),
        ({"max_user_namespaces": 0}, "sysctl -w user.max_user_namespaces=10000"),
        ({"max_net_namespaces": 0}, "sysctl -w user.max_net_namespaces=10000"),
        (
            {"apparmor_restrict_unprivileged_userns": 1, "unprivileged_userns_clone": 1},
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ({}, "a container's seccomp profile"),
    ],
)
def test_a_refusal_names_the_setting(tmp_path: Path, values: dict[str, int], remedy: str) -> None:
    error = refusal(PermissionError(errno.EPERM, "no"), _settings(tmp_path, **values))
    assert isinstance(error, NotPermitted)
    assert remedy in str(error)


def test_any_other_error_is_the_kernels() -> None:
    assert "Cannot allocate memory" in str(refusal(OSError(errno.ENOMEM, "no")))
