# SPDX-License-Identifier: BSD-2-Clause
"""Reads the configuration of the kernel's IPoIB interfaces by other programs, and writes ours.

Where to look:

- `sources`: whose file is it
- `draft`: the settings of one interface, as texts of our options
- `assembly`: joins several files
- `naming`: names and partitions
- `bonds`: a bond becomes rails
- `document`: writes our file
- `commands`: commands of shell in such files
- `ifcfg`: Red Hat's ifcfg
- `keyfile`: NetworkManager
- `networkd`: systemd-networkd
- `ifupdown`: interfaces(5)
- `suse`: wicked and netconfig
- `netplan`: netplan, and cloud-init's second version
- `cloud_init`: cloud-init's first version
- `nmstate`: nmstate and network_state
- `playbook`: RHEL's role
- `openib`: openib.conf
- `ini`: sections
- `shell_variables`: variables
- `yaml_file`: finds networks in YAML
- `yaml_nodes`: its nodes, with lines

It imports: `base`, `daemon`.

Not here:

- A key that is dropped in silence: say it by file, line and key.
"""
