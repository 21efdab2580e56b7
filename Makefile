# SPDX-License-Identifier: BSD-2-Clause
# `make lab` and `make test` set everything up by themselves on Debian 12 and 13: root installs what is
# missing, and runs the tests with the mark `root`; an ordinary user runs all others.

VENV    := .venv
PY      := $(VENV)/bin/python
SUDO    := $(if $(filter 0,$(shell id -u)),,sudo)
# Use the distribution's interpreter where it is new enough: only that one can have pyverbs.
PYTHON  ?= $(shell /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
             2>/dev/null && echo /usr/bin/python3 || echo python3)
NATIVE  := setup.py $(filter-out ext/tests/%,$(wildcard $(foreach room,* pump/*,$(addprefix ext/$(room)/*.,c h pyx pxd pxi))) $(wildcard bench/ceiling/*.[ch]))
C_FILES := $(shell git ls-files 'bench/*.[ch]' 'ext/*.[ch]' 'tests/*.[ch]' 2>/dev/null)

# Call compilers through ccache where ccache is installed, wherever the source lies.
ifneq ($(wildcard /usr/lib/ccache),)
export PATH := /usr/lib/ccache:$(PATH)
export CCACHE_NOHASHDIR := 1
endif
JOBS    := $(shell nproc)
# Tests in network namespaces wait more than they work; units and lab machines wait a little.
WAITING := $(shell expr 3 '*' $(JOBS))
BUSY    := $(shell expr 1 + $(JOBS))
PYTEST  := $(if $(CI),env CI=$(CI)) $(PY) -m pytest --durations=25
SPREAD  := $(PYTEST) --dist worksteal -n
QUICK   := tests/unit tests/sim tests/fuzz
ALONE   := tests/unit/core/test_pump.py
# The time that `make nightly` looks for inputs that break the C side, and that `make soak` takes.
FUZZ_SECONDS ?= 3600
HOURS        ?= 1

RUN_PACKAGES  := python3-venv python3-dev gcc libc6-dev libisal2 libdeflate0 liburing-dev python3-pyverbs \
                 libibverbs-dev ibverbs-providers iproute2 iputils-ping
# `ipoibu bench` reports contenders that are not installed as absent.
# Draws state machines for the site.
DOCS_PACKAGES  := graphviz
BENCH_PACKAGES := iproute2 iputils-ping iperf3 wireguard-go wireguard-tools fastd slirp4netns passt
TEST_PACKAGES := $(RUN_PACKAGES) git make ccache strace procps tcpdump tshark iperf3 socat ethtool nftables iptables e2fsprogs \
                 util-linux clang libclang-rt-dev gdb fish zsh \
                 pkgconf podman runc catatonit uidmap slirp4netns passt \
                 rdma-core librdmacm-dev ibverbs-utils rdmacm-utils perftest \
                 opensm ibsim-utils libumad2sim0 infiniband-diags keepalived bird2 frr \
                 prometheus python3-prometheus-client python3-rich systemd \
                 python3-yaml network-manager ifupdown netplan.io groff-base debootstrap rpm rpmlint shellcheck \
                 udhcpc dhcpcd-base dnsmasq-base kea-dhcp4-server kea-dhcp6-server isc-dhcp-server \
                 nginx-light curl chrony smcroute avahi-daemon avahi-utils dbus \
                 qemu-system-x86 busybox xz-utils wireguard-go wireguard-tools $(DOCS_PACKAGES)

# Programs of other people that examples/lab, examples/suites, the RDMA guide and tests/stacks run.
NIGHTLY_PACKAGES := fio iputils-arping libcap-dev libfabric-bin liblwip-dev libmnl-dev libopenmpi-dev netsniff-ng nfs-common \
                    nfs-kernel-server open-iscsi openmpi-bin qperf rsync targetcli-fb traceroute ucx-utils

# What a user of the examples and of the RDMA guide installs: the packages that they name.
EXAMPLE_PACKAGES = $(shell sed -n 's/^# Debian: //p' examples/lab/*.sh examples/lab/broken/*.sh | tr -d ,) \
                   $(shell sed -n '/^apt-get install/,/[^\\]$$/p' docs/use/rdma-guide.md | sed 's/apt-get install//' | tr -d '\\')

NIGHTLY := $(addprefix nightly-,releases roots kernels other-kernels conform suites packages fuzz decoders mutation attack)
.PHONY: help lab bench docs check check-c check-python test examples test-builds test-netns netns-spread netns-beside test-opensm test-lab nightly $(NIGHTLY) coverage soak soak-datagrams \
        lint format lab-kernel lab-zipapp virtual-machine venv build deps deps-test deps-nightly clean

help:
	@echo 'make lab         two hosts talk IP over InfiniBand in user space, and show it'
	@echo 'make check       lint, types and the tests that need neither root nor a lab: a minute or two'
	@echo 'make test-netns  hosts in network namespaces       make test-opensm  hosts under an OpenSM'
	@echo 'make test-lab    lab machines                      make test-builds  sanitizers and packages'
	@echo 'make test        all of these: what CI runs        make nightly      and the long tests'
	@echo 'make coverage    list the lines of the packet paths that the tests run'
	@echo 'make soak        eight hosts under faults for HOURS=1'
	@echo 'make soak-datagrams  the sockets of ipoibu.aio at full rate for two hours'
	@echo 'make bench       about ten minutes of measuring, beside kernel VXLAN and others'
	@echo 'make docs        the documentation as a site, in build/site/index.html'
	@echo 'make lab-kernel  the kernel of the lab machines, cached outside the tree'
	@echo 'make lab-zipapp  the lab as one file, build/ipoibu-lab.pyz, that any Python from 3.11 on runs'
	@echo 'make virtual-machine  the kernel and the initrd of the machines in tests/netns, cached, too'
	@echo 'make build       the C core, in place     make venv   .venv with everything to run'
	@echo 'make format      format Python and C      make clean  remove all build results'

lab: venv
	$(VENV)/bin/ipoibu lab --check

bench: venv
	$(call install,$(BENCH_PACKAGES))
	@mkdir -p build
	$(SUDO) $(VENV)/bin/ipoibu bench --json build/bench.json

# Makes the site in build/site; a warning of MkDocs ends the build (`strict` in mkdocs.yml).
docs: $(VENV)/.dev build
	$(call install,$(DOCS_PACKAGES))
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet

check: deps-test $(VENV)/.dev build
	@$(MAKE) --no-print-directory -j$(JOBS) lint check-c check-python
	$(PYTEST) -m serial $(ALONE)

check-python: $(VENV)/.dev build
	$(SPREAD) $(BUSY) -m 'not builds and not serial and not nightly' $(QUICK)

check-c: check-c-core check-c-soft check-c-verbs

check-c-core:
	@$(MAKE) -s -C ext/tests check

check-c-soft:
	@$(MAKE) -s -C ext/soft test

check-c-verbs:
	@$(MAKE) -s -C ext/verbs/tests check

test-builds: deps-test $(VENV)/.dev build
	$(PYTEST) --dist loadfile -n $(JOBS) -m 'builds and not nightly' tests/unit tests/package

test-netns: deps-test $(VENV)/.dev build virtual-machine
	@$(MAKE) --no-print-directory -j2 netns-spread netns-beside
	$(PYTEST) -m serial tests/netns
	$(if $(SUDO),$(SUDO) $(SPREAD) $(WAITING) -p no:cacheprovider -m 'root and not serial and not beside' tests/netns)
	$(if $(SUDO),$(SUDO) $(PYTEST) -p no:cacheprovider -m 'root and (serial or beside)' tests/netns)

# The tests with the mark `beside` need one process, and wait most of the time.
netns-spread:
	$(SPREAD) $(WAITING) -m 'not serial and not beside and not nightly' tests/netns

netns-beside:
	$(PYTEST) -m beside tests/netns

test-opensm: deps-test $(VENV)/.dev build
	$(SPREAD) $(WAITING) tests/opensm

test-lab: deps-test $(VENV)/.dev build lab-kernel
	$(SPREAD) $(BUSY) -m 'not serial and not nightly' tests/lab

# With the packages that the examples and the RDMA guide name alone, beside those that ipoibu needs.
examples: $(VENV)/.dev build
	$(call install,$(EXAMPLE_PACKAGES))
	@tests/stacks/build
	$(SPREAD) $(BUSY) $(EXAMPLES) tests/lab/test_examples.py tests/lab/test_guide.py

test: check
	@for tier in builds netns opensm lab; do $(MAKE) --no-print-directory test-$$tier || exit; done

# `make -k nightly` goes on after a stage that fails, and fails at the end.
nightly: test $(NIGHTLY) soak soak-datagrams

# All tiers, on a clone of this tree in a bare root of each release.
nightly-releases: deps-test
	@for suite in bookworm trixie; do $(SUDO) tests/package/on_release $$suite || exit; done

# The examples and the RDMA guide, in a bare root of each release, with this machine's kernels.
nightly-roots: deps-test $(VENV)/.run build
	@for suite in bookworm trixie; do $(SUDO) tests/package/examples_on_release $$suite || exit; done

nightly-kernels: deps-test deps-nightly $(VENV)/.dev build lab-kernel
	$(SUDO) $(SPREAD) $(BUSY) -m nightly tests/lab tests/netns tests/unit

nightly-other-kernels:
	@for release in 6.1 6.12; do IPOIBU_LAB_KERNEL=$$release $(MAKE) --no-print-directory test-lab || exit; done

# Writes docs/findings: what `ipoibu conform` says of kernels and of ipoibu.
nightly-conform: deps-test $(VENV)/.dev build
	@for release in 6.1 6.12 7.3; do IPOIBU_LAB_KERNEL=$$release $(MAKE) --no-print-directory lab-kernel || exit; done
	$(SUDO) $(PY) -m tests.lab.grading

# Writes docs/findings/suites.md: what other projects' suites say of kernels and of ipoibu.
nightly-suites: deps-test deps-nightly $(VENV)/.dev build
	@for release in 6.1 6.12 7.3; do IPOIBU_LAB_KERNEL=$$release $(MAKE) --no-print-directory lab-kernel || exit; done
	$(SUDO) $(PY) -m tests.lab.suites

# One of them, as in nightly-suite-pyverbs, or one of its runs: nightly-suite-pyverbs/2.
nightly-suite-%: deps-test deps-nightly $(VENV)/.dev build
	$(SUDO) $(PY) -m tests.lab.suites $*

nightly-packages: deps-test $(VENV)/.dev build
	$(SUDO) $(PYTEST) --dist loadfile -n $(JOBS) -m nightly tests/package

nightly-fuzz: deps-test
	@$(MAKE) -s -C ext/tests/fuzz hunt CC=clang SECONDS=$$(expr $(FUZZ_SECONDS) / 3)

nightly-decoders: deps-test $(VENV)/.dev build
	$(SPREAD) $(JOBS) --hypothesis-profile=nightly -m 'not builds and not serial' $(QUICK)

nightly-mutation: deps-test $(VENV)/.dev build
	$(PY) -m tests.mutation.run

nightly-attack: deps-test $(VENV)/.dev build
	$(SUDO) env ATTACK_SECONDS=5 $(PYTEST) tests/netns/test_attack.py
	$(SUDO) $(PY) -m tests.attack.ratios

# Hosts under seeded faults for HOURS hours (docs/understand/fuzzing.md).
soak: deps-test $(VENV)/.dev build
	$(SUDO) $(PY) -m tests.soak.soak --hours $(HOURS) $(SOAK_OPTIONS)

# The sockets of ipoibu.aio at full rate (docs/understand/fuzzing.md); neither memory nor descriptors grow.
soak-datagrams: deps-test $(VENV)/.dev build
	$(SUDO) $(PY) -m tests.soak.sockets $(SOAK_OPTIONS)

# Lists the line coverage of the packet paths; fails below 95 % (docs/understand/fuzzing.md).
coverage: deps-test $(VENV)/.dev build
	@rm -rf ext/tests/build/*coverage ext/soft/build/*coverage ext/tests/fuzz/build/*coverage
	@$(MAKE) -s -C ext/tests check COVERAGE=1 CC=gcc >/dev/null
	@$(MAKE) -s -C ext/soft test COVERAGE=1 CC=gcc >/dev/null
	@$(MAKE) -s -C ext/tests/fuzz replay COVERAGE=1 CC=gcc
	$(SUDO) env COVERAGE=1 $(PYTEST) -k live tests/netns/test_soft_hca.py
	@python3 ext/tests/coverage.py ext/tests/build/*coverage ext/soft/build/*coverage ext/tests/fuzz/build/*coverage

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/clang-format --dry-run --Werror $(C_FILES)

format: $(VENV)/.dev
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/clang-format -i $(C_FILES)

# Fetches a kernel of Debian; in the tests' own network namespaces there is no way to it.
virtual-machine:
	@tests/netns/virtual/build

# One file that runs the lab's machines with any Python: packaging/zipapp.
lab-zipapp: build
	@mkdir -p build
	packaging/zipapp/build build/ipoibu-lab.pyz

# Of the default releases the first that Debian's archive has and that builds.
lab-kernel: $(VENV)/.run build
	@$(VENV)/bin/ipoibu lab kernel build

venv: $(VENV)/.run build

# The bytecode is written here, because lab machines read this tree only, and some users have Python write none.
build: $(VENV)/.built
	@$(PY) -m compileall -q ipoibu tests

# Installs the Debian packages that are missing, and starts none of their services; without apt-get it
# prints their names.
define install
@missing=$$(for p in $(1); do \
    dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
 if [ -n "$$missing" ]; then \
    if command -v apt-get >/dev/null; then \
        $(SUDO) sh tests/install_packages $$missing; \
    else echo "no apt-get here: these Debian packages, or what your system calls them, are needed:" $$missing; fi; \
 fi
endef

deps:
	$(call install,$(RUN_PACKAGES))

deps-test:
	$(call install,$(TEST_PACKAGES))
	$(call install,libpython$$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')-testsuite)

deps-nightly:
	$(call install,$(NIGHTLY_PACKAGES))
	@tests/stacks/build

$(VENV)/bin/python: | deps
	$(PYTHON) -m venv --system-site-packages $(VENV)
	$(PY) -m pip install -q --upgrade pip
	$(PY) -m pip install -q 'cython>=3.0,<3.2' 'setuptools>=70' 'packaging>=24.2' wheel

$(VENV)/.run: pyproject.toml $(VENV)/bin/python
	PYTHONWARNINGS=ignore $(PY) -m pip install -q --no-build-isolation -C editable_mode=compat -e .
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/bin/python
	PYTHONWARNINGS=ignore $(PY) -m pip install -q --no-build-isolation -C editable_mode=compat -e '.[dev]'
	@touch $@ $(VENV)/.run

$(VENV)/.built: $(NATIVE) $(VENV)/bin/python
	$(PY) setup.py -q build_ext --inplace
	@touch $@

clean:
	rm -rf build dist *.egg-info $(VENV) ipoibu/*.so ipoibu/_core/*.so ext/soft/build ext/tests/build ext/verbs/tests/build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
