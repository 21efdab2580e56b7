# SPDX-License-Identifier: BSD-2-Clause
"""The command line: one file per command, named after it.

Where to look:

- `__main__`: python -m ipoibu.cli
- `bench`: ipoibu bench
- `bench_compare`: ipoibu bench compare
- `bench_procedures`: the options of ipoibu bench --rfc2544 and --rfc6349
- `capture`: ipoibu capture
- `child`: ipoibu child
- `completion`: ipoibu completion
- `config`: ipoibu config check
- `conform`: ipoibu conform
- `conn`: ipoibu conn
- `doctor`: ipoibu doctor
- `down`: ipoibu down
- `genkey`: ipoibu genkey
- `guests`: ipoibu guests
- `import`: ipoibu import
- `interrupts`: signals that end a command as Ctrl-C does
- `journal`: log lines as entries of systemd's journal, with fields, by its native protocol
- `lab`: ipoibu lab
- `lab_doctor`: ipoibu lab doctor
- `lab_kernel`: ipoibu lab kernel
- `lab_machines`: ipoibu lab --guests
- `lab_userland`: ipoibu lab userland
- `log`: ipoibu log
- `log_format`: the form of log lines on standard error, and their priorities in the journal
- `main`: the ipoibu command
- `mcast`: ipoibu mcast
- `metrics`: ipoibu metrics
- `monitor`: ipoibu monitor
- `neigh`: ipoibu neigh
- `options`: the options of ipoibu.daemon.config.options as arguments of up, lab and child add
- `parser`: the parser of the command line, with a subparser for each command's module
- `path`: ipoibu path
- `peers`: ipoibu peers
- `ping`: ipoibu ping
- `reload`: ipoibu reload
- `run`: ipoibu run
- `set`: ipoibu set
- `show`: ipoibu show
- `stats`: ipoibu stats
- `status`: ipoibu status
- `top`: ipoibu top
- `traffic`: the contents of ipoibu top
- `up`: ipoibu up
- `view`: the common part of show, neigh, mcast, conn and stats

It imports: `base`, `bench`, `conform`, `daemon`, `doctor`, `fabric`, `host`, `importer`, `lab`,
`rootless`.

Not here:

- A decision about interfaces: a command asks a daemon, and prints.
- An import at the top that only one command needs: it would slow all of them.
"""
