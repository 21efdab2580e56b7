# SPDX-License-Identifier: BSD-2-Clause
"""Virtual machines: kernels of User-mode Linux with real RDMA drivers, without RDMA hardware.

Where to look:

- `lab`: a lab for tests: boots machines, sets each up
- `machine`: one of them: runs commands, copies files
- `roles`: the scripts of machines: which runs where and when
- `live`: what machines print, as it comes
- `terminal`: a shell in a machine, on the caller's terminal
- `plan`: what machines the words of the options ask for
- `agent`: the host's side of the program that runs commands in a machine
- `runner`: the process of a machine: boots a kernel, runs a command in it
- `check`: machines try everything towards each other
- `mounts`: the files that a machine sees
- `shared`: the host's files in a directory that a machine writes, too
- `quota`: the cap of what machines write on the host
- `stream`: what comes out of a machine
- `wire`: the Ethernet between them
- `switch`: the InfiniBand switch that the wire is where OpenSM runs
- `smp`: subnet management packets as that switch sees them
- `capture`: what passed on the wire, in a file for Wireshark
- `impairment`: what the wire does to frames, in the words of netem
- `junit`: the results as JUnit XML
- `json_report`: the results as JSON
- `tap`: the results in the Test Anything Protocol
- `memory`: where their memory is
- `kinship`: what a process asks of the kernel about its children
- `kernels`: the kernels of the cache, and which one a machine boots
- `kernel_archive`: takes kernels from elsewhere, and writes them for others
- `judge`: the kernel's own ib_ipoib as the judge
- `inside`: what runs in a machine
- `scenarios`: what hosts of `ipoibu lab` and `bench` do

It imports: `base`, `fabric`, `lab.artefacts`, `lab.directory`, `lab.errors`, `lab.userland`.

Not here:

- A rate or a time as a verdict: a machine may wait a second for a processor.
"""
