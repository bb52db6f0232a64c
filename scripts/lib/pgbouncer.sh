# Real PgBouncers for the tests. Sourced after common.sh, debian.sh and postgres.sh.
#
#   need_pgbouncer    -> CONTEXT_TEST_PGBOUNCER, programs between colons; returns 75 when there is none
#
# Uses the installed PgBouncer. Otherwise unpacks those of Debian 12 and 13 into
# .cache/ with their libraries; nothing is installed. Debian 12 has 1.18, which
# does not support prepared statements. The version of Debian 13 does. Both are
# tested.

PGBOUNCER_CACHE=$CACHE/pgbouncer
PGBOUNCER_SUITES=(bookworm trixie)
PGBOUNCER_PACKAGES='^(pgbouncer|libc6|libevent.*|libssl3.*|libc-?ares2|libpam0g|libsystemd0|libcap2|libaudit1|libcap-ng0|libzstd1|zlib1g|liblzma5|liblz4-1|libgcrypt20|libgpg-error0)$'

unpack_pgbouncer() {
    local suite=$1 home=$PGBOUNCER_CACHE/$1 packages
    debian_lists "$home" "$suite" || return
    packages=$(apt_of "$home" apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
        --no-replaces --no-enhances pgbouncer | grep -E "$PGBOUNCER_PACKAGES" | sort -u) || return
    # shellcheck disable=SC2086 # one word for each package
    debian_fetch "$home" $packages || return
    # Run with its own loader, because the machine's libc may be older.
    cat >"$home/pgbouncer" <<'SCRIPT'
#!/bin/sh
root=$(dirname "$0")/root
libraries=$(find "$root" -name '*.so.*' -exec dirname {} + | sort -u | tr '\n' ':')
exec "$(find "$root" -name 'ld-linux*.so.*' | head -n 1)" --library-path "$libraries" "$root/usr/sbin/pgbouncer" "$@"
SCRIPT
    chmod -R a+rX "$home"
    chmod a+x "$home/pgbouncer"
    "$home/pgbouncer" --version >/dev/null
}

# Adds a program to CONTEXT_TEST_PGBOUNCER, copied if the server's user cannot run it.
offer_pgbouncer() {
    local program=$1
    if ! as_postgres test -x "$program"; then
        local copy=$POSTGRES_STATE/pgbouncer
        mkdir -p "$copy"
        cp -a "$(dirname "$program")" "$copy/" || return
        program=$copy/$(basename "$(dirname "$program")")/pgbouncer
    fi
    CONTEXT_TEST_PGBOUNCER=${CONTEXT_TEST_PGBOUNCER:+$CONTEXT_TEST_PGBOUNCER:}$program
}

need_pgbouncer() {
    local program suite
    if [[ -z ${CONTEXT_TEST_PGBOUNCER:-} ]]; then
        if program=$(PATH=$PATH:/usr/sbin command -v pgbouncer); then
            CONTEXT_TEST_PGBOUNCER=$program
        elif command -v apt-get >/dev/null; then
            for suite in "${PGBOUNCER_SUITES[@]}"; do
                if once "pgbouncer-$suite" "$suite" unpack_pgbouncer "$suite"; then
                    offer_pgbouncer "$PGBOUNCER_CACHE/$suite/pgbouncer"
                else
                    say "SKIPPED: the tests through the PgBouncer of Debian $suite, which could not be fetched"
                fi
            done
        fi
    fi
    [[ -n ${CONTEXT_TEST_PGBOUNCER:-} ]] || return 75
    export CONTEXT_TEST_PGBOUNCER
}
