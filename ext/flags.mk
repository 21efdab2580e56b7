# SPDX-License-Identifier: BSD-2-Clause
# What the Makefiles of ext share: the compiler and its flags, and what SANITIZE means.
#
#   SANITIZE=1         AddressSanitizer and UndefinedBehaviorSanitizer
#   SANITIZE=thread    ThreadSanitizer
#
# COVERAGE=1 counts the lines that programs run (ext/tests/coverage.py).

ifeq ($(origin CC),default)
CC := gcc
endif
# The compiler is called through ccache where that is installed.
ifneq ($(wildcard /usr/lib/ccache),)
export PATH := /usr/lib/ccache:$(PATH)
export CCACHE_NOHASHDIR := 1
endif

COMPILER := $(lastword $(notdir $(CC)))
CFLAGS ?= -O2 -g
FLAGS := -std=c11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror -MMD -MP -pthread
VARIANT := plain

ifeq ($(SANITIZE),1)
VARIANT := address
FLAGS += -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
else ifeq ($(SANITIZE),thread)
VARIANT := thread
FLAGS += -O1 -fsanitize=thread
else ifneq ($(filter-out 0,$(SANITIZE)),)
$(error SANITIZE is 0, 1 or thread)
endif

ifeq ($(COVERAGE),1)
VARIANT := $(VARIANT)-coverage
FLAGS += -O0 --coverage
endif

COMPILE = $(CC) $(CFLAGS) $(FLAGS)
