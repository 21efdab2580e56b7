# SPDX-License-Identifier: BSD-2-Clause
"""The interface in C: its examples run with nothing but the public header, and traffic outlives what
happens to an endpoint."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

import ipoibu
from ipoibu import CDevice, UsageError
from ipoibu.base.addr import PKey
from ipoibu.fabric.memory import MemoryPort, MemorySwitch
from tests.doubles.administered import Subnet, until
from tests.doubles.c_example import EXAMPLES, Echo, Generator, build, build_by_pkg_config

BEFORE: Final = (PKey(0xFFFF),)
MOVED: Final = (PKey(0x8003), PKey(0xFFFF))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("c-device")
    build(directory)
    return directory


@pytest.fixture
def subnet() -> Iterator[Subnet]:
    subnet = Subnet()
    yield subnet
    subnet.close()


def more_comes_back(generator: Generator) -> None:
    before = generator.received
    until(lambda: generator.received > before)


def test_the_examples_exchange_packets(built: Path) -> None:
    program = [sys.executable, str(EXAMPLES / "traffic.py"), str(built)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("10000 packets came back\n", 0), done.stderr


def test_the_examples_compile_by_the_flags_of_pkg_config(tmp_path: Path) -> None:
    """tests/package/test_install.py does it with an installed package."""
    build_by_pkg_config(tmp_path)
    program = [sys.executable, str(EXAMPLES / "traffic.py"), str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("10000 packets came back\n", 0), done.stderr


def test_an_example_has_at_most_200_lines() -> None:
    for path in EXAMPLES.glob("*.*"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 200, path


def test_traffic_outlives_a_heavy_flush_of_either_end(built: Path, subnet: Subnet) -> None:
    echo = Echo(built)
    first = subnet.host()
    subnet.host(device=echo.device)
    generator = Generator(built, first)
    try:
        for number, pkeys, renewals in ((1, MOVED, 1), (2, MOVED, 1), (1, BEFORE, 2)):
            more_comes_back(generator)
            mads, endpoint = subnet.ports[number - 1].mads, subnet.endpoints[number - 1]
            mads.info = replace(mads.info, pkeys=pkeys)
            flushed = {"engine.renewals": renewals}
            until(lambda of=endpoint, it=flushed: it.items() <= of.stats().items())  # type: ignore[misc]
        more_comes_back(generator)
    finally:
        generator.stop()
    assert echo.count > 0


def test_traffic_outlives_a_close_and_goes_on_after_the_next_open(
    built: Path, subnet: Subnet
) -> None:
    echo = Echo(built)
    first = subnet.host()
    second = subnet.host(device=echo.device)
    generator = Generator(built, first)
    try:
        for endpoint, address in ((first, "10.0.0.1/24"), (second, "10.0.0.2/24")):
            more_comes_back(generator)
            endpoint.close()
            endpoint.open()
            endpoint.address_added(address)
        more_comes_back(generator)
        first.close()
    finally:
        generator.stop()


def test_a_queue_belongs_to_python_or_to_c(subnet: Subnet) -> None:
    in_c, in_python = subnet.host(), subnet.host()
    assert in_c.c_queue() is not None
    with pytest.raises(UsageError, match="threads in C"):
        in_c.send([bytes(20)])
    with pytest.raises(UsageError, match="threads in C"):
        in_c.recv(timeout=0)
    in_python.reserve(1)
    with pytest.raises(UsageError, match="Python has frames"):
        in_python.c_queue()


def test_a_device_has_no_queue(built: Path, subnet: Subnet) -> None:
    endpoint = subnet.host(device=Echo(built).device)
    with pytest.raises(UsageError, match="the device's"):
        endpoint.c_queue()
    with pytest.raises(UsageError, match="the device's"):
        endpoint.send([bytes(20)])


def test_what_is_no_device_of_this_version_is_refused() -> None:
    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        CDevice(object())
    switch = MemorySwitch()
    port = MemoryPort(switch, ipoibu.Gid.parse("fe80::1"))
    with pytest.raises(ValueError, match="PyCapsule_GetPointer"):
        CDevice(port)
    name = b"ipoibu.packet_device.v1"
    empty = (ctypes.c_char * 256)()
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    with pytest.raises(OSError, match="packet device"):
        CDevice(new(ctypes.addressof(empty), name, None))
