# SPDX-License-Identifier: BSD-2-Clause
"""pyroute2's messages of rtnetlink, without the rest of pyroute2.

`import pyroute2` loads its databases and every protocol that it knows, which takes as long as all of ipoibu:
a restart of the service would take longer, and so would every command. So its packages are loaded without
their `__init__.py`, and forgotten afterwards: a later `import pyroute2` gets the whole library.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec

_PACKAGE = "pyroute2"


def _of_library(name: str) -> bool:
    return name == _PACKAGE or name.startswith(f"{_PACKAGE}.")


def _begin() -> bool:
    """Put an empty package in place of the library, if it is not loaded yet."""
    spec = None if _PACKAGE in sys.modules else find_spec(_PACKAGE)
    if spec is None:
        return False
    sys.modules[_PACKAGE] = module_from_spec(spec)
    return True


_is_bare = _begin()
try:
    from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
    from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
    from pyroute2.netlink.rtnl.rtmsg import rtmsg
finally:
    if _is_bare:
        for _name in [name for name in sys.modules if _of_library(name)]:
            del sys.modules[_name]

__all__ = ["ifaddrmsg", "ifinfmsg", "rtmsg"]
