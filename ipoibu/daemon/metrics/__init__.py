# SPDX-License-Identifier: BSD-2-Clause
"""What operators watch: counters, drops, Prometheus.

Where to look:

- `counters`: the meaning of every counter, from counters.toml
- `metrics`: the same for Prometheus
- `metrics_server`: its HTTP server
- `drop_log`: drops as log lines

It imports: `base`, `daemon.process`, `endpoint`, `proto`.

Not here:

- A counter without its line in counters.toml.
"""
