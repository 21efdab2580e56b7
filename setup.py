# SPDX-License-Identifier: BSD-2-Clause
"""Builds the C core, and the verbs fabric where infiniband/verbs.h is there.

Switches, from the environment (each 1 or unset):

IPOIBU_SANITIZE   AddressSanitizer and UndefinedBehaviorSanitizer; "thread": ThreadSanitizer
IPOIBU_COVERAGE   gcov
IPOIBU_DEBUG      -O0 -g and assertions
IPOIBU_WERROR     warnings are errors (CI)

The core loads liburing at run time, and, where they are faster than its own CRC-32, ISA-L or libdeflate.
IPOIBU_WITHOUT="uring verbs" builds as if the headers of those libraries were absent.
"""

from __future__ import annotations

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# Where pythran is installed (as a dependency of Debian's matplotlib, say), Cython imports it, and it
# imports numpy.distutils, which puts older parts into distutils than setuptools can work with.
sys.modules["pythran"] = None  # type: ignore[assignment]

from Cython.Build import cythonize  # noqa: E402
from setuptools import Extension, setup  # noqa: E402
from setuptools._distutils.ccompiler import new_compiler  # noqa: E402
from setuptools._distutils.errors import CCompilerError, CompileError, LinkError  # noqa: E402
from setuptools._distutils.sysconfig import customize_compiler  # noqa: E402
from setuptools.command.build_ext import build_ext  # noqa: E402

AGENT = "ipoibu.lab.machines.inside.agent"
HEADERS = [
    str(path)
    for room in ("ext", "bench", "ipoibu/include")
    for kind in ("*.h", "*.pxd", "*.pxi")
    for path in Path(room).rglob(kind)
]


def c_files(rooms: tuple[str, ...]) -> list[str]:
    return sorted(str(path) for room in rooms for path in Path("ext").glob(f"{room}/*.c"))


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


def have_static_library() -> bool:
    """Whether the C library is here as an archive: not on Fedora without glibc-static."""
    compiler = new_compiler()
    customize_compiler(compiler)
    with tempfile.TemporaryDirectory() as work:
        source = Path(work, "probe.c")
        source.write_text("int main(void) { return 0; }\n")
        try:
            objects = compiler.compile([str(source)], output_dir=work)
            compiler.link_executable(objects, "probe", output_dir=work, extra_postargs=["-static"])
        except (CCompilerError, CompileError, LinkError):
            return False
    return True


def compiled() -> dict[str, list[str]]:
    """What every extension is compiled and linked with."""
    compile_args = ["-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-pthread"]
    # A build gives the same bytes in any directory.
    compile_args.append(f"-ffile-prefix-map={os.getcwd()}=.")
    link_args = ["-pthread"]
    if switch("DEBUG"):
        compile_args += ["-O0", "-g", "-UNDEBUG"]
    else:
        compile_args += ["-O3", "-DNDEBUG"]
    kind = {"": "", "0": "", "thread": "thread"}.get(
        os.environ.get("IPOIBU_SANITIZE", ""), "address,undefined"
    )
    if kind:
        sanitize = [f"-fsanitize={kind}", "-fno-omit-frame-pointer", "-g"]
        compile_args += sanitize
        link_args += sanitize
    if switch("COVERAGE"):
        compile_args += ["--coverage", "-O0"]
        link_args += ["--coverage"]
    if switch("WERROR"):
        compile_args += ["-Werror", "-Wno-error=unused-function"]
    return {"extra_compile_args": compile_args, "extra_link_args": link_args}


def extension(
    name: str,
    sources: list[str],
    libraries: list[str] | None = None,
    macros: list[tuple[str, str]] | None = None,
) -> Extension:
    return Extension(
        f"ipoibu.{name}",
        sources,
        include_dirs=["ext", "ipoibu/include"],
        depends=HEADERS,
        define_macros=[("_GNU_SOURCE", ""), *(macros or [])],
        libraries=libraries or [],
        **compiled(),
    )


def core() -> list[Extension]:
    """One module for each contract; each carries its own copy of ext/core."""
    uring = [("IPU_HAVE_URING", "1")] if have_library("uring", "liburing.h") else []
    fabric = c_files(("core", "fabric", "rails", "soft", "unicast"))
    device = c_files(("core", "device"))
    pump = c_files(("core", "pump/*"))
    return [
        extension("_core.fabric", ["ext/python/fabric.pyx", *fabric], ["dl"]),
        extension("_core.device", ["ext/python/device.pyx", *device], ["dl"], uring),
        extension("_core.pump", ["ext/python/pump.pyx", *pump]),
        extension("sandbox._libc", ["ext/python/libc.pyx"]),
    ]


def verbs() -> Extension:
    own = ["ext/python/verbs.pyx", "ext/python/pyverbs_qp.c", "ext/soft/membership.c"]
    return extension("_verbs", [*own, *c_files(("verbs", "mesh"))], ["ibverbs"])


def ceiling() -> Extension:
    """The contender of the benchmark that does what the protocol demands, and nothing else."""
    own = ["ext/python/ceiling.pyx", *map(str, sorted(Path("bench/ceiling").glob("*.c")))]
    packets = [f"ext/pump/packets/{name}.c" for name in ("coalesce", "mss", "segment")]
    sources = [*own, *packets, "ext/device/train.c", *c_files(("core", "soft"))]
    return extension("bench._ceiling", sources, ["dl"])


def agent() -> Extension:
    """The agent of lab machines: a program, static where the C library allows it, for any userland."""
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-O2", f"-ffile-prefix-map={os.getcwd()}=."]
    if switch("WERROR"):
        flags.append("-Werror")
    return Extension(
        AGENT,
        c_files(("agent",)),
        include_dirs=["ext"],
        depends=HEADERS,
        define_macros=[("_GNU_SOURCE", "")],
        extra_compile_args=flags,
        extra_link_args=["-s", *(["-static"] if have_static_library() else [])],
    )


class BuildExt(build_ext):
    """Compiles the C files of a module beside each other: as many as `-j` says, or as there are CPUs.

    The modules follow each other, each with its objects in a directory of its own, since several
    have the same files with different macros.
    """

    def build_extensions(self) -> None:
        jobs = int(self.parallel or len(os.sched_getaffinity(0)))
        self.parallel = None  # else modules would be built beside each other
        compile_all = self.compiler.compile

        def compile_beside(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(jobs) as pool:
                objects = pool.map(lambda source: compile_all([source], **options), sources)
                return [path for paths in objects for path in paths]

        self.compiler.compile = compile_beside
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        shared = self.build_temp
        self.build_temp = os.path.join(shared, ext.name)
        if ext.name == AGENT:
            self._build_program(ext)
        else:
            super().build_extension(ext)
        self.build_temp = shared

    def _build_program(self, ext: Extension) -> None:
        path = Path(self.get_ext_fullpath(ext.name))
        sources = [*ext.sources, *ext.depends]
        if path.exists() and all(path.stat().st_mtime > os.stat(it).st_mtime for it in sources):
            return
        objects = self.compiler.compile(
            ext.sources,
            output_dir=self.build_temp,
            macros=ext.define_macros,
            include_dirs=ext.include_dirs,
            extra_postargs=ext.extra_compile_args,
        )
        self.compiler.link_executable(
            objects, path.name, output_dir=str(path.parent), extra_postargs=ext.extra_link_args
        )

    def get_ext_filename(self, fullname: str) -> str:
        if fullname in (AGENT, AGENT.rpartition(".")[2]):  # the latter when it is built in place
            return fullname.replace(".", "/")
        return str(super().get_ext_filename(fullname))


if sys.platform != "linux":
    raise SystemExit("ipoibu needs Linux: it is built on TUN devices and RDMA verbs")

extensions = [*core(), ceiling(), agent()]
if have_library("verbs", "infiniband/verbs.h"):
    extensions.append(verbs())

setup(
    cmdclass={"build_ext": BuildExt},
    ext_modules=cythonize(
        extensions,
        include_path=["ext/python"],
        build_dir="build/cython",
        compiler_directives={"language_level": "3"},
    ),
)
