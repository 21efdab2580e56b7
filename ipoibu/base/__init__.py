# SPDX-License-Identifier: BSD-2-Clause
"""What every room uses: addresses, values, limits, errors. Nothing here decides anything.

Where to look:

- `addr`: GIDs, hardware addresses, P_Keys and MACs as frozen values
- `ib`: what layers say to each other about ports, partitions and destinations
- `trains`: which frames of TCP leave as one train
- `route`: routes as values, in the form of the C core
- `limits`: every cap and timer, with unit and source
- `c_limits`: the numbers of the C core that Python needs, too
- `errors`: the two families of errors
- `bounds`: allowed values of a configuration's field
- `closing`: `with` for whatever has `close`
- `device_name`: which names of devices there are
- `interface_name`: which names the kernel accepts for an interface
- `processes`: the children of a process
- `exhaustion`: the end of a process that gets no more memory
- `privilege`: what this process may do
- `distribution`: which package of which distribution to install

It imports: nothing.

Part of the core, but for `distribution`, `interface_name`, `privilege`, `processes`.

Not here:

- A number outside of `limits`: its cap would have no source and no row in the register.
- A helper that one room alone uses: it belongs in that room.
"""
