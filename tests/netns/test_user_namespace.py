# SPDX-License-Identifier: BSD-2-Clause
"""Labs and tests of ordinary users, who are root of a user namespace there."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ipoibu.lab.namespace import NETNS_DIR
from tests.netns.ordinary_user import IPOIBU, OrdinaryUser

pytestmark = pytest.mark.netns

Until = Callable[..., object]
PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def user() -> Iterator[OrdinaryUser]:
    with OrdinaryUser.pair() as (user, _):
        yield user
        assert user.left() == []


@pytest.mark.root
def test_the_lab_of_an_ordinary_user_passes_its_check(user: OrdinaryUser) -> None:
    done = user.run("lab", "--hosts", "3", "--check", "--json")
    assert done.returncode == 0, done
    report = json.loads(done.stdout)
    assert report["ok"]
    assert not any((NETNS_DIR / host["namespace"]).exists() for host in report["hosts"])


@pytest.mark.root
def test_a_command_in_the_lab_is_root_there_and_its_files_are_the_users(user: OrdinaryUser) -> None:
    file = user.directory / "made"
    script = f"id -u; ip netns list | wc -l; touch {file}; ipoibu neigh >&2; exit 7"
    done = user.run("lab", "--", "sh", "-c", script)
    assert done.returncode == 7, done
    assert done.stdout.splitlines()[-2:] == ["0", "2"]
    assert file.stat().st_uid == user.uid
    file.unlink()


@pytest.mark.root
def test_the_command_that_a_waiting_lab_prints_enters_a_host(user: OrdinaryUser) -> None:
    process = user.popen("lab", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(b"look at it:"):
            break
    words = line.decode().partition(":")[2].split()
    become = user.words()[: -len(IPOIBU)]
    environment = {**os.environ, **user.environment()}
    shown = subprocess.run(
        [*become, *words], env=environment, capture_output=True, text=True, check=False
    )
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=90)
    assert (process.returncode, errors) == (0, b"\n")
    assert shown.stdout.startswith("ib0: device soft:eth0 "), shown


@pytest.mark.parametrize(
    "words", [["run", "--device", "soft:eth0", "--", "true"], ["lab", "--check"]]
)
def test_where_user_namespaces_are_forbidden_one_line_names_the_setting(words: list[str]) -> None:
    """The limit is that of a user namespace, and of all below it."""
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces"
    bare = "setpriv --inh-caps=-all --bounding-set=-all"
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", f'{forbid}; exec {bare} "$@"', "sh", *IPOIBU, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == (
        "ipoibu: this machine forbids user namespaces: "
        "run `sysctl -w user.max_user_namespaces=10000` as root\n"
    )


@pytest.mark.root
def test_an_ordinary_user_runs_the_tests_that_need_no_root(user: OrdinaryUser) -> None:
    become = user.words()[: -len(IPOIBU)]
    chosen = ["tests/netns/test_traffic.py", "tests/netns/test_cli.py", "-k", "udp or privileges"]
    options = ["-q", "-rA", "-p", "no:cacheprovider", "-n", "1"]
    done = subprocess.run(
        [
            *become,
            sys.executable,
            "-m",
            "pytest",
            *options,
            *chosen,
            f"--basetemp={user.directory}/t",
        ],
        cwd=PROJECT,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(user.directory / "t")
    assert done.returncode == 0, done.stdout
    assert "PASSED tests/netns/test_traffic.py" in done.stdout
    assert "privileges" not in done.stdout  # these need root
