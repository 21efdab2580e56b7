# SPDX-License-Identifier: BSD-2-Clause
"""An artefact of a kernel that boots nothing, as `kernel/build` leaves it in the cache."""

import hashlib
import json
from pathlib import Path
from typing import Any

ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\x3e\x00" + bytes(100)


def make_kernel(
    directory: Path,
    version: str = "6.12.117",
    flavour: str = "lean",
    *,
    recipe: str = "0123456789abcdef",
    linux: bytes = ELF,
    **changed: Any,
) -> Path:
    """Write one; `changed` replaces keys of its manifest."""
    directory.mkdir(parents=True)
    (directory / "linux").write_bytes(linux)
    (directory / "linux").chmod(0o755)
    release = ".".join(version.split(".")[:2])
    digest = hashlib.sha256(linux).hexdigest()
    (directory / "linux.sha256").write_text(f"{digest}  linux\n")
    (directory / "config").write_text("CONFIG_STATIC_LINK=y\n")
    patches = directory / "recipe" / release / "patches"
    patches.mkdir(parents=True)
    (patches / "um.patch").write_text("SPDX-License-Identifier: GPL-2.0\n")
    manifest = {
        "format": 1,
        "name": f"linux-{version}-{flavour}",
        "release": release,
        "flavour": flavour,
        "version": version,
        "architecture": "x86_64",
        "recipe": recipe,
        "source": {
            "package": f"linux-source-{release}",
            "version": f"{version}-1~deb12u1",
            "file": f"linux-source-{release}.tar.xz",
            "sha256": hashlib.sha256(b"the source").hexdigest(),
        },
        "files": {
            str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(directory.rglob("*"))
            if file.is_file()
        },
    }
    (directory / "manifest.json").write_text(json.dumps({**manifest, **changed}))
    return directory
