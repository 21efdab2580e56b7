# SPDX-License-Identifier: BSD-2-Clause
"""The only module that imports pyverbs: its versions, its absence, and errors."""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipoibu.base.errors import IpoibuError, LinkError, NoSuchDevice, NotPermitted
from ipoibu.fabric.verbs import objects
from ipoibu.fabric.verbs.objects import VerbsDevice, import_problem, load, translate

from .verbs_fake import install, machine, uninstall


@pytest.fixture(params=["enums", "libibverbs_enums"])  # its name up to 44, and later
def pyverbs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install(monkeypatch, request.param)
    yield
    uninstall()


@pytest.mark.usefixtures("pyverbs")
def test_both_names_of_the_enum_module_are_known() -> None:
    assert load().enums.IBV_QPT_UD == 4


@pytest.mark.usefixtures("pyverbs")
def test_the_applications_logging_is_left_as_it_was() -> None:
    root = logging.getLogger()
    mine = logging.NullHandler()
    handlers, level = list(root.handlers), root.level
    root.addHandler(mine)
    root.setLevel(logging.ERROR)
    try:
        load()
        assert root.handlers == [*handlers, mine]
        assert root.level == logging.ERROR
        root.handlers.clear()  # basicConfig does something only then
        sys.modules.pop("pyverbs.device")
        load()
        assert root.handlers == []
        assert root.level == logging.ERROR
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.mark.usefixtures("pyverbs")
def test_devices_are_listed_by_name() -> None:
    machine().devices = {"rxe1": 0, "mlx5_0": 0}
    with pytest.raises(NoSuchDevice, match="rxe0: no such RDMA device; there are: mlx5_0, rxe1 "):
        VerbsDevice("rxe0")


@pytest.mark.usefixtures("pyverbs")
def test_a_machine_without_rdma_has_no_devices() -> None:
    machine().errors["list"] = errno.ENOSYS
    with pytest.raises(NoSuchDevice, match=r"rxe0: no such RDMA device; there are: none"):
        VerbsDevice("rxe0")


@pytest.mark.usefixtures("pyverbs")
def test_the_devices_that_are_there_are_named() -> None:
    machine().devices = {"rxe1": 0, "mlx5_0": 0}
    with pytest.raises(NoSuchDevice, match=r"there are: mlx5_0, rxe1 \(rdma link shows them\)"):
        VerbsDevice("rxe0")


@pytest.mark.usefixtures("pyverbs")
def test_a_network_device_is_taken_for_what_it_is() -> None:
    with pytest.raises(NoSuchDevice, match=r"lo: no RDMA device but a network device.* soft:lo"):
        VerbsDevice("lo")


@pytest.mark.usefixtures("pyverbs")
def test_a_device_without_a_user_space_driver_differs_from_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bnxt_re0").mkdir()
    monkeypatch.setattr(objects, "_SYSFS", tmp_path)
    with pytest.raises(
        NoSuchDevice, match=r"no driver for it: apt-get install .*ibverbs-providers"
    ):
        VerbsDevice("bnxt_re0")


@pytest.mark.usefixtures("pyverbs")
def test_iwarp_has_no_datagrams_and_is_closed_again() -> None:
    machine().devices = {"siw0": 1}
    with pytest.raises(LinkError, match="siw0 is an iWARP device"):
        VerbsDevice("siw0")
    assert machine().log[-1] == "close context"


@pytest.mark.usefixtures("pyverbs")
def test_a_domain_that_fails_closes_the_context_but_not_a_lent_one() -> None:
    machine().errors["pd"] = errno.ENOMEM
    with pytest.raises(LinkError, match="rxe0: protection domain: out of memory"):
        VerbsDevice("rxe0")
    assert machine().log[-1] == "close context"
    context = load().device.Context(name="rxe0")
    with pytest.raises(LinkError):
        VerbsDevice(None, context=context)
    assert machine().log[-1] == "pd"


@pytest.mark.usefixtures("pyverbs")
def test_pkeys_come_in_host_order() -> None:
    machine().pkeys = [0x8001, 0x7FFF]
    assert [str(key) for key in VerbsDevice("rxe0").pkeys(1, 2)] == ["0x8001", "0x7fff"]


@pytest.mark.usefixtures("pyverbs")
def test_gids_are_those_of_the_port() -> None:
    machine().gids = [(0, "fe80::1", 2, 3, 1), (1, "fe80::1", 1, 3, 1), (0, "fe80::2", 2, 4, 2)]
    device = VerbsDevice("rxe0")
    first = [(entry.index, str(entry.gid), entry.is_roce_v2) for entry in device.gids(1, 3)]
    assert first == [(0, "fe80::1", True), (1, "fe80::1", False)]
    assert [entry.ifindex for entry in device.gids(2, 3)] == [4]
    assert str(device.gid(2, 0)) == "fe80::2"


@pytest.mark.usefixtures("pyverbs")
def test_the_gids_of_all_ports_find_room_where_each_port_has_one() -> None:
    """The library fills a table with the GIDs of all ports, or refuses it, whichever port we ask about."""
    machine().gids = [(0, "fe80::1", 2, 3, 1), (0, "fe80::2", 2, 4, 2)]
    device = VerbsDevice("rxe0")
    found = [[str(entry.gid) for entry in device.gids(port, 1)] for port in (1, 2)]
    assert found == [["fe80::1"], ["fe80::2"]]


@pytest.mark.usefixtures("pyverbs")
def test_a_device_that_takes_less_inline_gets_none() -> None:
    device = VerbsDevice("rxe0")
    assert device.create_ud(8, 16, 128).qp.attr.cap.max_inline_data == 128
    machine().max_inline = 64
    objects = device.create_ud(8, 16, 128)
    assert objects.qp.attr.cap.max_inline_data == 0
    assert objects.qp.attr.sq_sig_all == 0  # signalling is selective
    assert (objects.qp.attr.cap.max_send_wr, objects.qp.attr.cap.max_recv_wr) == (8, 16)


@pytest.mark.usefixtures("pyverbs")
@pytest.mark.parametrize("step", ["channel", "cq 8", "cq 16", "qp"])
def test_what_was_made_before_a_failure_is_closed(step: str) -> None:
    device = VerbsDevice("rxe0")
    machine().errors[step] = errno.ENOMEM
    machine().log.clear()
    with pytest.raises(LinkError, match=r"out of memory; .* ulimit -l unlimited"):
        device.create_ud(8, 16, 0)
    made = {"channel", "cq 8", "cq 16"} & set(machine().log) - {step}
    closed = [what for what in machine().log if what.startswith("close")]
    assert len(closed) == len(made)
    if closed:
        assert closed[-1] == "close channel"  # after the queues that use it


@pytest.mark.usefixtures("pyverbs")
def test_a_device_that_is_gone_is_closed_as_far_as_it_goes() -> None:
    device = VerbsDevice("rxe0")
    objects = device.create_ud(8, 16, 0)
    for what in ("close qp", "close cq", "close pd"):
        machine().errors[what] = errno.EIO
    objects.close_queue_pair()
    objects.close_rest()
    device.close()
    assert machine().log[-1] == "close context"


def test_without_pyverbs_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyverbs", None)
    for name in [name for name in sys.modules if name.startswith("pyverbs.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(NoSuchDevice, match=r"need pyverbs, .*: apt-get install python3-pyverbs"):
        load()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "/lib/x86_64-linux-gnu/libibverbs.so.1: version `IBVERBS_PRIVATE_59' not found "
            "(required by pyverbs/base.cpython-311-x86_64-linux-gnu.so)",
            "does not fit the libibverbs that is installed",
        ),
        ("libibverbs.so.1: cannot open shared object file", "does not load (libibverbs.so.1:"),
    ],
)
def test_a_pyverbs_that_does_not_load_differs_from_none(text: str, words: str) -> None:
    problem = import_problem(text)
    assert words in problem
    assert "apt-get install python3-pyverbs" in problem


@pytest.mark.parametrize(
    ("what", "code", "kind", "words"),
    [
        ("open", errno.EACCES, NotPermitted, "run as root"),
        ("queue pair", errno.EPERM, NotPermitted, "run as root"),
        ("open", errno.ENOENT, NotPermitted, "modprobe ib_uverbs"),
        ("port 3", errno.EINVAL, NoSuchDevice, "rxe0: it has no port 3"),
        ("port 1", errno.ENODEV, LinkError, "rxe0: the device is gone"),
        ("queue pair", errno.EIO, LinkError, "rxe0: the device is gone"),
        ("queue pair", errno.ENOMEM, LinkError, "LimitMEMLOCK=infinity"),
        ("queue pair", errno.EINVAL, LinkError, "rxe0: queue pair: it said no"),
    ],
)
def test_pyverbs_errors_become_ours(
    what: str, code: int, kind: type[IpoibuError], words: str
) -> None:
    class Refused(Exception):
        error_code = code

    error = translate("rxe0", what, Refused("it said no"))
    assert type(error) is kind
    assert words in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("base", "path", "hides"),
    [
        ("/usr", ["/v/lib/python3.11/site-packages"], True),
        ("/usr", ["/v/lib/python3.11/site-packages", "/usr/lib/python3/dist-packages"], False),
        (
            "/usr",
            ["/v/lib64/python3.13/site-packages", "/usr/lib64/python3.13/site-packages"],
            False,
        ),
        ("/v", ["/v/lib/python3.11/site-packages"], False),
    ],
)
def test_only_an_isolated_environment_hides_the_distribution(
    base: str, path: list[str], hides: bool
) -> None:
    assert objects.hides_distribution("/v", base, path) is hides
