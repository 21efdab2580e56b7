# SPDX-License-Identifier: BSD-2-Clause
#
# meeting.sh: guests of one run wait for each other and exchange values.
#
# Through files in the run's directory: it works before any link is up, and the test on the host can
# take part. hostfs caches no names, so a file is seen by all at once; `put` renames a finished file
# into place, so it is seen whole. meeting.py speaks the same protocol.
. "$LAB_INSIDE/links.sh"

all_met() { # NAME
    local signs=("/run/lab/meetings/$1:"*)
    ((${#signs[@]} >= LAB_COUNT))
}

meet() { # NAME [SECONDS]: returns when every guest has come to this point
    : >"/run/lab/meetings/$1:$LAB_NAME" || return 1
    until_true "${2:-20}" "the others at '$1'" all_met "$1"
}

put() { # KEY VALUE
    local file=/run/lab/values/$1
    printf '%s\n' "$2" >"$file.$LAB_NAME" && mv "$file.$LAB_NAME" "$file"
}

get() { # KEY [SECONDS]: prints the value as soon as it is there
    local file=/run/lab/values/$1
    until_true "${2:-20}" "the value '$1'" test -e "$file" && cat "$file"
}
