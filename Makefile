# SPDX-License-Identifier: BSD-2-Clause
# `make lab` and `make test` set everything up by themselves on a Debian 12 machine (as root).

VENV    := .venv
PY      := $(VENV)/bin/python
SUDO    := $(if $(filter 0,$(shell id -u)),,sudo)
# The distribution's interpreter where it is new enough: it is the one that can have pyverbs.
PYTHON  ?= $(shell /usr/bin/python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
             2>/dev/null && echo /usr/bin/python3 || echo python3)
NATIVE  := setup.py $(filter-out ext/tests/%,$(wildcard $(addprefix ext/*/*.,c h pyx pxd)))
C_FILES := $(shell git ls-files 'ext/*.[ch]' 'tests/*.[ch]' 2>/dev/null)

RUN_PACKAGES  := python3-venv python3-dev gcc libc6-dev libisal-dev libdeflate-dev liburing-dev python3-pyverbs \
                 libibverbs-dev ibverbs-providers
# Contenders that are not there are reported absent.
BENCH_PACKAGES := iproute2 iputils-ping iperf3 wireguard-go wireguard-tools fastd
TEST_PACKAGES := $(RUN_PACKAGES) git make iproute2 iputils-ping procps tcpdump tshark iperf3 socat ethtool \
                 util-linux clang clang-format libclang-rt-14-dev gdb fish \
                 rdma-core librdmacm-dev ibverbs-utils rdmacm-utils perftest \
                 opensm ibsim-utils libumad2sim0 infiniband-diags

.PHONY: help lab bench test lint format check-c lab-kernel venv build deps deps-test clean

help:
	@echo 'make lab         two hosts talk IP over InfiniBand in user space, and show it'
	@echo 'make test        lint and the whole test suite (root: network namespaces)'
	@echo 'make bench       five minutes of measuring, beside kernel VXLAN and others'
	@echo 'make lab-kernel  the guest kernel of the lab tests, cached outside the tree'
	@echo 'make build       the C core, in place     make venv   .venv with everything to run'
	@echo 'make format      format Python and C      make clean  remove what was built'

lab: venv
	$(SUDO) $(VENV)/bin/ipoibu lab --check

bench: venv
	$(call install,$(BENCH_PACKAGES))
	@mkdir -p build
	$(SUDO) $(VENV)/bin/ipoibu bench --json build/bench.json

test: deps-test $(VENV)/.dev build lint lab-kernel
	$(SUDO) $(if $(CI),env CI=$(CI)) $(PY) -m pytest

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo
	clang-format --dry-run --Werror $(C_FILES)

format: $(VENV)/.dev
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .
	clang-format -i $(C_FILES)

lab-kernel:
	@ipoibu/lab/guests/kernel/build

venv: $(VENV)/.run build

build: $(VENV)/.built

# Installs Debian packages only where some are missing; elsewhere it says what is needed.
define install
@missing=$$(for p in $(1); do \
    dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
 if [ -n "$$missing" ]; then \
    if command -v apt-get >/dev/null; then \
        $(SUDO) apt-get update -qq && \
        $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing >/dev/null; \
    else echo "no apt-get here: these Debian packages, or what your system calls them, are needed:" $$missing; fi; \
 fi
endef

deps:
	$(call install,$(RUN_PACKAGES))

deps-test:
	$(call install,$(TEST_PACKAGES))

$(VENV)/bin/python: | deps
	$(PYTHON) -m venv --system-site-packages $(VENV)
	$(PY) -m pip install -q --upgrade pip
	$(PY) -m pip install -q 'cython>=3.0,<3.2' 'setuptools>=70' wheel

$(VENV)/.run: pyproject.toml $(VENV)/bin/python
	PYTHONWARNINGS=ignore $(PY) -m pip install -q --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/bin/python
	PYTHONWARNINGS=ignore $(PY) -m pip install -q --no-build-isolation -e '.[dev]'
	@touch $@ $(VENV)/.run

$(VENV)/.built: $(NATIVE) $(VENV)/bin/python
	$(PY) setup.py -q build_ext --inplace
	@touch $@

clean:
	rm -rf build dist *.egg-info $(VENV) ipoibu/*.so ipoibu/_core/*.so ext/soft/build ext/tests/build ext/verbs/tests/build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
