# SPDX-License-Identifier: BSD-2-Clause
"""A daemon has no OpenSSL in its memory; a program that wants TLS has it."""

from __future__ import annotations

import pytest

from tests.interpreter import run

LOAD = (
    "from ipoibu.daemon.process.plain_asyncio import load_plain_asyncio\n"
    "load_plain_asyncio()\n"
    "import asyncio, sys\n"
)


def test_the_modules_of_a_daemon_load_no_tls() -> None:
    run(["-c", LOAD + "import ipoibu.daemon.daemon\nassert not {'ssl', '_ssl'} & set(sys.modules)"])


def test_an_event_loop_works_and_tls_loads_when_something_wants_it() -> None:
    program = (
        "asyncio.run(asyncio.to_thread(lambda: None))\n"
        "import ssl\n"
        "assert ssl.create_default_context()\n"
    )
    run(["-c", LOAD + program])


@pytest.mark.parametrize("module", ["asyncio", "ssl"])
def test_what_a_program_has_loaded_already_stays(module: str) -> None:
    program = f"import asyncio, sys; before = sys.modules[{module!r}]\n{LOAD}"
    run(["-c", program + f"assert sys.modules[{module!r}] is before\nassert asyncio.sslproto.ssl"])
