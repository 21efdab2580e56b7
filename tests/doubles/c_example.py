# SPDX-License-Identifier: BSD-2-Clause
"""The examples of docs/examples/c-device, compiled against the public header, in a test's process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from ipoibu import CDevice, Endpoint

EXAMPLES: Final = Path(__file__).parents[2] / "docs/examples/c-device"


def _environment(**more: str) -> dict[str, str]:
    """Return ours, without the sanitizer that tests/package/test_sanitized.py loads into Python."""
    return {**os.environ, "LD_PRELOAD": "", **more}


def build(directory: Path, python: Path = Path(sys.executable)) -> None:
    """Compile the examples as the package of that interpreter lets others do it."""
    script = ["sh", str(EXAMPLES / "build.sh"), str(directory)]
    subprocess.run(script, env=_environment(PYTHON=str(python)), cwd="/", check=True)


def build_by_pkg_config(directory: Path, python: Path = Path(sys.executable)) -> None:
    """Compile them by the flags of pkg-config alone."""
    where = [str(python), "-c", "import ipoibu; print(ipoibu.get_include())"]
    include = subprocess.run(
        where, cwd="/", env=_environment(), capture_output=True, text=True, check=True
    ).stdout
    flags = subprocess.run(
        ["pkg-config", "--cflags", "ipoibu"],
        env=_environment(PKG_CONFIG_PATH=include.strip()),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    for name in ("echo", "generator"):
        command = [
            *os.environ.get("CC", "cc").split(),
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            "-pthread",
            *flags,
        ]
        command += [str(EXAMPLES / f"{name}.c"), "-o", str(directory / f"{name}.so")]
        subprocess.run(command, env=_environment(), check=True)


def _traffic() -> ModuleType:
    spec = importlib.util.spec_from_file_location("c_device_traffic", EXAMPLES / "traffic.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Echo:
    """The packet device that answers UDP."""

    def __init__(self, directory: Path) -> None:
        self._code = _traffic()
        self._library = self._code.Library(directory / "echo.so")
        self._echo = self._library.pointer("echo_create")
        self.device: CDevice = CDevice(self._code.capsule(self._echo, self._code.DEVICE))

    @property
    def count(self) -> int:
        return int(self._library.count("echo_count", self._echo))


class Generator:
    """The threads that send packets to 10.0.0.2 and count what comes back."""

    def __init__(self, directory: Path, endpoint: Endpoint) -> None:
        self._code = _traffic()
        self._library = self._code.Library(directory / "generator.so")
        self._queue = endpoint.c_queue()
        pointer = self._code.pointer_of(self._queue, self._code.QUEUE)
        ends = bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2))
        self._generator = self._library.pointer("generator_start", pointer, *ends, 7, 64)

    @property
    def received(self) -> int:
        return int(self._library.count("generator_received", self._generator))

    def stop(self) -> None:
        self._library.pointer("generator_stop", self._generator)
