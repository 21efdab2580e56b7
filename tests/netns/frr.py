# SPDX-License-Identifier: BSD-2-Clause
"""FRR in hosts of a lab and in pods."""

from __future__ import annotations

import re
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.netns.programs import Station, running

Vtysh = Callable[[str], str]

START_S = 60.0
CLIENTS = {"bgpd": "bgp", "ospfd": "ospf", "ospf6d": "ospf6", "pimd": "pim"}  # as zebra names them


@contextmanager
def frr(station: Station, text: str, *daemons: str) -> Iterator[Vtysh]:
    """Run zebra and these daemons with this configuration; yield a function that runs a command of vtysh."""
    names = ("zebra", *daemons)
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        (work / "frr.conf").write_text(text)

        def ask(*words: str) -> tuple[int, str]:
            done = station.run(["vtysh", "--vty_socket", str(work), *words])
            return done.returncode, done.stdout + done.stderr

        def vtysh(*words: str) -> str:
            code, printed = ask(*words)
            assert code == 0, f"{shlex.join(words)}: {printed}"
            return printed

        def is_ready() -> bool:
            if not all((work / f"{name}.vty").exists() for name in names):
                return False
            clients = ask("-c", "show zebra client summary")[1]
            return all(re.search(rf"^{CLIENTS.get(it, it)} ", clients, re.M) for it in daemons)

        with running(station, work, "sh", "-c", _script(work, daemons)):
            deadline = time.monotonic() + START_S
            while not is_ready():
                log = (work / f"{station.name}.log").read_text(errors="replace")
                assert time.monotonic() < deadline, f"FRR does not start: {log}"
                time.sleep(0.05)
            vtysh("-f", str(work / "frr.conf"))
            yield lambda command: vtysh("-c", command)


def _script(work: Path, daemons: tuple[str, ...]) -> str:
    options = f"-u root -g root -A 127.0.0.1 -P 0 -f /dev/null --log stdout -z {work}/zserv.api"

    def start(name: str) -> str:
        return f"/usr/lib/frr/{name} {options} --vty_socket {work} -i {work}/{name}.pid &"

    return "\n".join(
        [
            # FRR wants its user in the group frrvty; an ordinary user's namespace has no user but root.
            f"sed -E 's/^(frrvty:.*:)[^:]*$/\\1root/' /etc/group >{work}/group",
            f"mount --bind {work}/group /etc/group || exit",
            start("zebra"),
            # A daemon that does not find zebra tries again after ten seconds.
            f"until [ -S {work}/zserv.api ]; do sleep 0.05; done",
            *map(start, daemons),
            "wait",
        ]
    )
