# SPDX-License-Identifier: BSD-2-Clause
#
# meeting.sh: machines of one run wait for each other and exchange values.
#
# They use files in the run's directory, so meetings work before any link is up, and the test on the
# host can take part. hostfs caches no names, so all machines see a file at once; `put` renames a
# finished file into place, so they see it whole. meeting.py speaks the same protocol.
. "$LAB_INSIDE/links.sh"

all_met() { # NAME
    local signs=("/run/lab/meetings/$1:"*)
    ((${#signs[@]} >= LAB_COUNT))
}

meet() { # NAME [SECONDS]: returns when every machine has come to this point
    : >"/run/lab/meetings/$1:$LAB_NAME" || return 1
    until_true "${2:-60}" "the others at '$1'" all_met "$1"
}

put() { # KEY VALUE
    local file=/run/lab/values/$1
    printf '%s\n' "$2" >"$file.$LAB_NAME" && mv "$file.$LAB_NAME" "$file"
}

get() { # KEY [SECONDS]: prints the value as soon as it exists
    local file=/run/lab/values/$1
    until_true "${2:-60}" "the value '$1'" test -e "$file" && cat "$file"
}
