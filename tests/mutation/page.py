# SPDX-License-Identifier: BSD-2-Clause
"""The clauses of docs/understand/conformance.md, as docs/make/list_clauses.py reads them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]


def load() -> ModuleType:
    """Return docs/make/list_clauses.py as a module; docs is no package."""
    spec = importlib.util.spec_from_file_location(
        "list_clauses", ROOT / "docs/make/list_clauses.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
