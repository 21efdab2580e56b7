# SPDX-License-Identifier: BSD-2-Clause
"""Builds the C core, and the verbs fabric where infiniband/verbs.h is there.

Switches, from the environment (each 1 or unset):

IPOIBU_SANITIZE   AddressSanitizer and UndefinedBehaviorSanitizer
IPOIBU_COVERAGE   gcov
IPOIBU_DEBUG      -O0 -g and assertions
IPOIBU_WERROR     warnings are errors (CI)

ISA-L or else libdeflate (carry-less multiply CRC-32) is used when its header is there, a table
otherwise; liburing makes a TUN cheaper. IPOIBU_WITHOUT="isal libdeflate uring verbs" builds as if those
libraries were absent.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

# Where pythran is installed (as a dependency of Debian's matplotlib, say), Cython imports it, and it
# imports numpy.distutils, which puts older parts into distutils than setuptools can work with.
sys.modules["pythran"] = None  # type: ignore[assignment]

from Cython.Build import cythonize  # noqa: E402
from setuptools import Extension, setup  # noqa: E402
from setuptools._distutils.ccompiler import new_compiler  # noqa: E402
from setuptools._distutils.errors import CCompilerError, CompileError  # noqa: E402
from setuptools._distutils.sysconfig import customize_compiler  # noqa: E402

CORE_ROOMS = ("core", "device", "fabric", "pump", "soft")  # of ext/, with all their C files
VERBS_ROOMS = ("verbs", "mesh")
HEADERS = [str(path) for kind in ("*.h", "*.pxi") for path in Path("ext").rglob(kind)]


def c_files(rooms: tuple[str, ...]) -> list[str]:
    return sorted(str(path) for room in rooms for path in Path("ext", room).glob("*.c"))


def switch(name: str) -> bool:
    return os.environ.get(f"IPOIBU_{name}", "") not in ("", "0")


def have_library(library: str, name: str) -> bool:
    """Whether a C file that includes the library's header `name` compiles here."""
    if library in os.environ.get("IPOIBU_WITHOUT", "").split():
        return False
    compiler = new_compiler()
    customize_compiler(compiler)
    with tempfile.TemporaryDirectory() as work:
        source = Path(work, "probe.c")
        source.write_text(f"#include <{name}>\nint main(void) {{ return 0; }}\n")
        try:
            compiler.compile([str(source)], output_dir=work)
        except (CCompilerError, CompileError):
            return False
    return True


def compiled() -> dict[str, list[str]]:
    """What every extension is compiled and linked with."""
    compile_args = ["-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-pthread"]
    link_args = ["-pthread"]
    if switch("DEBUG"):
        compile_args += ["-O0", "-g", "-UNDEBUG"]
    else:
        compile_args += ["-O3", "-DNDEBUG"]
    if switch("SANITIZE"):
        sanitize = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g"]
        compile_args += sanitize
        link_args += sanitize
    if switch("COVERAGE"):
        compile_args += ["--coverage", "-O0"]
        link_args += ["--coverage"]
    if switch("WERROR"):
        compile_args += ["-Werror", "-Wno-error=unused-function"]
    return {"extra_compile_args": compile_args, "extra_link_args": link_args}


def core() -> Extension:
    macros: list[tuple[str, str | None]] = [("_GNU_SOURCE", "")]
    libraries: list[str] = []
    if have_library("isal", "isa-l/crc.h"):
        macros.append(("IPU_HAVE_ISAL", "1"))
        libraries.append("isal")
    elif have_library("libdeflate", "libdeflate.h"):
        macros.append(("IPU_HAVE_LIBDEFLATE", "1"))
        libraries.append("deflate")
    if have_library("uring", "liburing.h"):
        macros.append(("IPU_HAVE_URING", "1"))
        libraries.append("uring")
    return Extension(
        "ipoibu._core",
        ["ext/python/_core.pyx", *c_files(CORE_ROOMS)],
        include_dirs=["ext"],
        depends=HEADERS,
        define_macros=macros,
        libraries=libraries,
        **compiled(),
    )


def verbs() -> Extension:
    return Extension(
        "ipoibu._verbs",
        [
            "ext/python/_verbs.pyx",
            "ext/python/pyverbs_qp.c",
            "ext/soft/membership.c",
            *c_files(VERBS_ROOMS),
        ],
        include_dirs=["ext"],
        depends=HEADERS,
        define_macros=[("_GNU_SOURCE", "")],
        libraries=["ibverbs"],
        **compiled(),
    )


if sys.platform != "linux":
    raise SystemExit("ipoibu needs Linux: it is built on TUN devices and RDMA verbs")

extensions = [core()]
if have_library("verbs", "infiniband/verbs.h"):
    extensions.append(verbs())

setup(ext_modules=cythonize(extensions, compiler_directives={"language_level": "3"}))
