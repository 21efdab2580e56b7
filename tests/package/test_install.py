# SPDX-License-Identifier: BSD-2-Clause
"""`pip install` in a plain virtual environment: of a clone with the optional libraries, and of a source
distribution without them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.c_example import EXAMPLES, build, build_by_pkg_config

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "ipoibu/lab/machines"


def only_the_package_is_there(venv: Path) -> None:
    """No test, double or test helper is installed, at the top or inside the package."""
    (record,) = venv.glob("lib/python*/site-packages/ipoibu-*.dist-info/RECORD")
    files = [Path(line.split(",")[0]) for line in record.read_text().splitlines()]
    installed = [file.with_suffix("") for file in files if file.suffix == ".py"]
    assert len(installed) > 150
    assert {module.parts[0] for module in installed} == {"ipoibu"}
    for module in installed:
        assert not {"tests", "testing", "doubles", "conftest"} & set(module.parts), module
        assert not module.name.startswith(("test_", "fake")), module


def texts(tree: Path) -> dict[Path, str]:
    """Return the texts of all files below `tree`."""
    return {file.relative_to(tree): file.read_text() for file in tree.rglob("*") if file.is_file()}


def the_machines_find_their_files(venv: Path, elsewhere: Path) -> None:
    """`lab --guests` and `bench --lab` work without the source tree, as far as no machine boots."""
    (machines,) = venv.glob("lib/python*/site-packages/ipoibu/lab/machines")
    assert texts(machines / "kernel") == texts(SHIPPED / "kernel")
    shipped = {file.relative_to(SHIPPED) for file in SHIPPED.rglob("*.sh")}
    assert shipped == {file.relative_to(machines) for file in machines.rglob("*.sh")}
    for program in ("init", "session", "kmod", "agent"):  # the machine's kernel runs them
        assert os.access(machines / "inside" / program, os.X_OK), program
    for words, said in (
        ("lab --help", "--guests"),
        ("lab --guests --device eth0", "expected one of rxe0, soft:vec0, siw0"),
        ("bench --lab --only nobody", "expected some of ethernet, ib_ipoib datagram"),
    ):
        command = [str(venv / "bin" / "ipoibu"), *words.split()]
        done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False)
        assert said in done.stdout + done.stderr
        assert done.returncode == (0 if "--help" in words else 2)
    build = subprocess.run(
        ["bash", str(machines / "kernel/build"), "superfluous"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (build.returncode, build.stderr.strip()) == (
        2,
        "lab-kernel: usage: build [--check | --recipe | --source DIRECTORY] [--kernel RELEASE]"
        " [--flavour FLAVOUR]",
    )


@pytest.mark.builds
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("without", ["", "verbs uring"], ids=["with", "without"])
def test_a_plain_environment_installs_and_runs(tmp_path: Path, without: str) -> None:
    source, venv = tmp_path / "source", tmp_path / "venv"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(source)], check=True)
    if without:
        subprocess.run([sys.executable, "setup.py", "-q", "sdist"], cwd=source, check=True)
        (source,) = (source / "dist").iterdir()
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    subprocess.run(
        [python, "-m", "pip", "install", "-q", str(source)],
        env=os.environ | {"IPOIBU_WITHOUT": without},
        check=True,
    )
    version = subprocess.run(
        [str(venv / "bin" / "ipoibu"), "--version"], capture_output=True, text=True, check=True
    )
    assert version.stdout.startswith("ipoibu 0.")
    features = "from ipoibu import _core; print(_core.FEATURES['uring'])"
    probe = subprocess.run(
        [python, "-c", features], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    is_there = Path("/usr/include/liburing.h").exists()
    assert probe.stdout.strip() == str(is_there and not without)
    only_the_package_is_there(venv)
    the_machines_find_their_files(venv, tmp_path)
    example = subprocess.run(
        [python, str(ROOT / "docs/examples/echo_blocking.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "three came back from 10.0.0.2" in example.stdout
    for compile_examples in (build, build_by_pkg_config):
        directory = tmp_path / compile_examples.__name__
        directory.mkdir()
        compile_examples(directory, Path(python))
        traffic = [python, str(EXAMPLES / "traffic.py"), str(directory)]
        done = subprocess.run(traffic, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == "10000 packets came back\n"
