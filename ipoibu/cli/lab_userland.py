# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu lab userland`: the programs and libraries of lab machines, for hosts that lack them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ipoibu.base.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from ipoibu.lab.userland.image import Userland

# The action, and what may follow it.
ACTIONS: Final = {
    "build": ("", 0, 0),
    "fetch": ("SOURCE", 1, 1),
    "list": ("", 0, 0),
    "path": ("[USERLAND]", 0, 1),
    "verify": ("[USERLAND]", 0, 1),
}


def run(options: argparse.Namespace) -> int:
    """Do one action; return the exit code."""
    from ipoibu.lab.userland import image

    action, *words = options.words or [""]
    if action not in ACTIONS:
        raise UsageError(f"lab userland {action!r}: expected one of {', '.join(ACTIONS)}")
    shape, least, most = ACTIONS[action]
    if not least <= len(words) <= most or options.rest:
        raise UsageError(f"usage: ipoibu lab userland {action} {shape}".rstrip())
    if action == "build":
        print(_build(options))
        return 0
    if action == "fetch":
        return _show(image.add(words[0], options.sha256), as_json=options.json)
    if action == "list":
        found = image.cached()
        if options.json:
            print(json.dumps([_as_dict(each) for each in found], indent=2))
        else:
            print("".join(f"{each}\n" for each in found), end="")
        return 0
    userland = image.find(words[0] if words else None)
    if action == "path":
        return _show(userland, as_json=options.json)
    differences = image.verify(userland)
    print("".join(f"{each}\n" for each in differences), end="")
    if not differences:
        print(f"{userland.path} is as it was made")
    return 1 if differences else 0


def _build(options: argparse.Namespace) -> Path:
    import ipoibu
    from ipoibu.lab.userland.build import build

    package = Path(ipoibu.__file__).resolve().parent
    directory = Path(options.output or ".")

    def say(text: str) -> None:
        print(f"lab userland: {text}", file=sys.stderr, flush=True)

    return build(
        directory, package, ipoibu.__version__, suite=options.suite, further=options.add, say=say
    )


def _show(userland: Userland, *, as_json: bool) -> int:
    print(json.dumps(_as_dict(userland), indent=2) if as_json else userland.path)
    return 0


def _as_dict(userland: Userland) -> dict[str, object]:
    return {
        "path": str(userland.path),
        "suite": userland.suite,
        "ipoibu": userland.ipoibu,
        "packages": userland.packages,
    }
