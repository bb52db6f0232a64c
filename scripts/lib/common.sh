# Paths, messages and run-once installs for the scripts. Sourced, never run.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# The tests install into this directory, Debian's packages apart. It is git-ignored and safe to delete.
CACHE=${CONTEXT_TEST_CACHE:-$ROOT/.cache}
mkdir -p "$CACHE"

say() { printf '%s\n' "$*" >&2; }

die() {
    say "error: $*"
    exit 1
}

# An older bash takes an empty array for an unset variable, which `set -u` refuses. macOS has 3.2.
((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] >= 404)) || die "bash 4.4 or newer is needed; this is $BASH_VERSION"

# fingerprint FILE... : prints one word that changes when any of the files changes.
fingerprint() { cat "$@" | cksum | tr ' ' '-'; }

# once NAME FINGERPRINT COMMAND... : runs the command unless it already succeeded
# with this fingerprint. An interrupted command runs again.
once() {
    local mark=$CACHE/$1.installed fingerprint=$2
    shift 2
    if [[ -f $mark && $(<"$mark") == "$fingerprint" ]]; then
        return 0
    fi
    rm -f "$mark"
    "$@" || return
    printf '%s' "$fingerprint" >"$mark"
}
