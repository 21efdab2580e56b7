#!/bin/sh
# Compiles the two examples into the directory that the caller names.
set -eu
include=$(${PYTHON:-python3} -c 'import ipoibu; print(ipoibu.get_include())')
for name in echo generator; do
    ${CC:-cc} -O2 -Wall -Wextra -shared -fPIC -pthread "-I$include" \
        "$(dirname "$0")/$name.c" -o "$1/$name.so"
done
