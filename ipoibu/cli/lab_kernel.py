# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu lab kernel`: builds, fetches, lists and checks the kernels of lab machines."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ipoibu.cli.lab_machines import FLAVOURS

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser
    from ipoibu.lab.machines.kernels import Kernel


def add(actions: argparse._SubParsersAction[Parser]) -> None:
    parser = actions.add_parser(
        "kernel",
        help="build, fetch, list and check kernels of machines",
        description="Build, fetch, list and check the kernels of lab machines. A kernel is of a release of"
        " Linux and of a flavour: lean has what the lab needs, full what other people's tests need.",
    )
    verbs = parser.add_subparsers(metavar="ACTION", required=True, dest="verb")
    build = verbs.add_parser(
        "build",
        help="build a kernel, on Debian",
        description="Build a kernel unless it is in the cache (minutes, on Debian), and print its path.",
    )
    build.add_argument(
        "--output",
        "--to",  # its name in earlier checkouts; 0.3 does without it
        metavar="DIRECTORY",
        type=Path,
        help="also write it there for others to fetch: a directory, an archive, its source, SHA-256 of all",
    )
    build.add_argument(
        "--without-source",
        action="store_true",
        help="with --output: no source; GPL-2.0 asks of who publishes the kernel to offer it otherwise",
    )
    fetch = verbs.add_parser(
        "fetch",
        help="take a kernel that somebody has built",
        description="Check a kernel that `build --output` has written, take it into the cache, and print its"
        " path.",
    )
    fetch.add_argument("source", metavar="SOURCE", help="a directory, an archive, or its URL")
    fetch.add_argument(
        "--sha256",
        metavar="DIGEST",
        help="that of the archive, or of the kernel in a directory; by default SOURCE.sha256 says it",
    )
    listed = verbs.add_parser("list", help="list the kernels of the cache")
    path = verbs.add_parser("path", help="print the path of the kernel that machines boot")
    verify = verbs.add_parser(
        "verify",
        help="check the files of the cache's kernels",
        description="Compare the files of the cache's kernels with their SHA-256; exit code 1 if any"
        " differs.",
    )
    for verb in (build, fetch, listed, path, verify):
        verb.add_argument(
            "--kernel",
            metavar="RELEASE",
            type=_release,
            help="the release of Linux, such as 6.12, or newest",
        )
        verb.add_argument("--flavour", metavar="FLAVOUR", choices=FLAVOURS, help="lean or full")
        verb.add_argument("-j", "--json", action="store_true", help="print JSON with stable keys")
        verb.set_defaults(run=run)


def _release(text: str) -> str:
    from ipoibu.base.errors import UsageError
    from ipoibu.lab.machines.kernels import NEWEST, releases

    known = releases()
    if text == NEWEST:
        return known[-1]
    if text not in known:
        raise UsageError(f"--kernel {text!r} is none of {', '.join([*known, NEWEST])}")
    return text


def run(options: argparse.Namespace) -> int:
    from ipoibu.base.errors import UsageError

    if options.rest:
        raise UsageError("lab kernel runs no COMMAND")
    verbs = {
        "build": _build,
        "fetch": _fetch,
        "list": _list,
        "path": _path,
        "verify": _verify,
    }
    return verbs[options.verb](options)


def _build(options: argparse.Namespace) -> int:
    from ipoibu.base.errors import UsageError
    from ipoibu.lab.machines import kernels
    from ipoibu.lab.machines.kernel_archive import publish

    if options.without_source and options.output is None:
        raise UsageError("--without-source needs --output")
    kernel = kernels.build(options.kernel, options.flavour)
    if options.output is None:
        return _print(kernel, options)
    made = publish(kernel, options.output, with_source=not options.without_source)
    if options.json:
        print(json.dumps({**kernel.describe(), "written": [str(path) for path in made]}, indent=2))
    else:
        print("\n".join(str(path) for path in made))
    return 0


def _fetch(options: argparse.Namespace) -> int:
    from ipoibu.lab.machines.kernel_archive import fetch_kernel

    return _print(
        fetch_kernel(options.source, options.kernel, options.flavour, options.sha256), options
    )


def _list(options: argparse.Namespace) -> int:
    from ipoibu.lab.machines import kernels

    found = kernels.cached(options.kernel, options.flavour)
    if options.json:
        print(json.dumps([kernel.describe() for kernel in found], indent=2))
        return 0
    for kernel in found:
        source = kernel.fetched_from
        origin = "built here" if source is None else f"fetched from {source}"
        old = "" if kernel.is_current else ", by another version of ipoibu"
        print(f"{kernel.name}  {kernel.source['version']}  {origin}{old}\n    {kernel.path}")
    return 0


def _path(options: argparse.Namespace) -> int:
    from ipoibu.lab.errors import LabError
    from ipoibu.lab.machines import kernels

    kernel = kernels.best(options.kernel, options.flavour)
    if kernel is None:
        release, flavour = kernels.chosen(options.kernel, options.flavour)
        release = release or kernels.default_release()
        words = f"--kernel {release} --flavour {flavour}"
        raise LabError(
            f"there is no kernel {release} {flavour} here; run: ipoibu lab kernel build {words},"
            f" or: ipoibu lab kernel fetch SOURCE {words}"
        )
    return _print(kernel, options)


def _verify(options: argparse.Namespace) -> int:
    from ipoibu.lab.machines import kernels

    found = kernels.cached(options.kernel, options.flavour)
    differing = {kernel.directory: kernel.differences() for kernel in found}
    if options.json:
        print(
            json.dumps(
                [{**it.describe(), "differences": differing[it.directory]} for it in found],
                indent=2,
            )
        )
    else:
        for kernel in found:
            print(f"{'differs' if differing[kernel.directory] else 'ok':7}  {kernel.directory}")
            for line in differing[kernel.directory]:
                print(f"    {line}")
    return 1 if any(differing.values()) else 0


def _print(kernel: Kernel, options: argparse.Namespace) -> int:
    print(json.dumps(kernel.describe(), indent=2) if options.json else kernel.path)
    return 0
