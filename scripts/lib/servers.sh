# Starts the built binaries for a suite, on free ports, with a database and a HOME
# of their own. Keeps their logs and stops everything at the end. Sourced after
# common.sh.
#
#   use_binaries "$@"            sets BIN from the first argument (default target/debug)
#   start_service [flag...]      -> SERVICE_URL, SERVICE_ADDR, SERVICE_PID, SERVICE_LOG
#   start_gateway_http [flag...] -> GATEWAY_URL, GATEWAY_PID, GATEWAY_LOG
#   start_tls_proxy              -> TLS_URL, TLS_AUTHORITY: a proxy with TLS to the service
#   check_logs                   fails when a process died or its log shows a panic

PIDS=()
LOGS=()

use_binaries() {
    BIN=$(cd "${1:-$ROOT/target/debug}" 2>/dev/null && pwd) || die "no such directory: ${1:-$ROOT/target/debug}; build first (cargo build --workspace)"
    SERVICE=$BIN/context-service
    GATEWAY=$BIN/context-gateway
    [[ -x $SERVICE ]] || die "$SERVICE is missing; build first (cargo build --workspace)"
    [[ -x $GATEWAY ]] || die "$GATEWAY is missing; build first (cargo build --workspace)"
    # A Unix socket path has at most 107 bytes. TMPDIR may be too long for it.
    SCRATCH=$(mktemp -d /tmp/context-test.XXXXXX) || die "no directory for the servers could be made in /tmp"
    REAL_HOME=$HOME
    export HOME=$SCRATCH/home XDG_RUNTIME_DIR=$SCRATCH/run
    mkdir -m 0700 "$HOME" "$XDG_RUNTIME_DIR"
    unset XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME XDG_STATE_HOME
    # The settings of the person who runs the tests must not reach the servers.
    # docs/configuration.md names those of the service. The others are the gateway's, and those of mcp-context-server.
    local name
    for name in $(sed -n 's/^| `\([A-Z0-9_]*\)`.*/\1/p' "$ROOT/docs/configuration.md") \
        $(compgen -e | grep -E '^(CONTEXT_(HOOK_.*|BACKEND|API_KEY(_FILE)?|THREAD|TOOLS)|GATEWAY_.*|DISABLED_TOOLS|DATABASE_URL|MCP_AUTH_.*|(ENABLE|MAX|EMBEDDING|POSTGRESQL)_.*)$'); do
        unset "$name"
    done
    export DB_PATH=$SCRATCH/context.db CONTEXT_SOCKET=$SCRATCH/service.sock
    # A proxy of this machine cannot reach the servers.
    export no_proxy=127.0.0.1,localhost${no_proxy:+,$no_proxy}
    export NO_PROXY=$no_proxy
    trap stop_everything EXIT
    trap 'exit 130' INT TERM
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_until SECONDS DESCRIPTION PID LOG COMMAND... : runs the command until it
# succeeds. Fails after SECONDS, or when the process has ended.
wait_until() {
    local deadline=$((SECONDS + $1)) what=$2 pid=$3 log=$4
    shift 4
    until "$@" >/dev/null 2>&1; do
        if ! kill -0 "$pid" 2>/dev/null || ((SECONDS >= deadline)); then
            say "--- $log"
            tail -n 40 "$log" >&2
            die "$what did not become ready"
        fi
        sleep 0.05
    done
}

# In Python, because a machine with only the toolchains may lack curl.
service_ready() {
    python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)' "$SERVICE_URL/readyz"
}

start_service() {
    SERVICE_ADDR=127.0.0.1:$(free_port)
    SERVICE_URL=http://$SERVICE_ADDR
    SERVICE_LOG=$SCRATCH/service.log
    "$SERVICE" --listen "$SERVICE_ADDR" "$@" >>"$SERVICE_LOG" 2>&1 &
    SERVICE_PID=$!
    PIDS+=("$SERVICE_PID")
    LOGS+=("$SERVICE_LOG")
    wait_until 30 context-service "$SERVICE_PID" "$SERVICE_LOG" service_ready
}

accepts_connections() {
    python3 -c '
import socket, sys
host, port = sys.argv[1].split(":")
socket.create_connection((host, int(port)), 1)' "$1"
}

start_gateway_http() {
    local addr
    addr=127.0.0.1:$(free_port)
    GATEWAY_URL=http://$addr/mcp
    GATEWAY_LOG=$SCRATCH/gateway.log
    CONTEXT_BACKEND=$SERVICE_URL GATEWAY_LISTEN=$addr "$GATEWAY" http "$@" >>"$GATEWAY_LOG" 2>&1 &
    GATEWAY_PID=$!
    PIDS+=("$GATEWAY_PID")
    LOGS+=("$GATEWAY_LOG")
    wait_until 30 context-gateway "$GATEWAY_PID" "$GATEWAY_LOG" accepts_connections "$addr"
}

start_tls_proxy() {
    local port pid
    port=$(free_port)
    TLS_URL=https://localhost:$port
    TLS_AUTHORITY=$ROOT/services/store-postgres/tests/it/tls/authority.pem
    python3 "$ROOT/scripts/outside/tls_proxy.py" "$port" "$SERVICE_ADDR" >"$SCRATCH/tls-proxy.log" 2>&1 &
    pid=$!
    PIDS+=("$pid")
    wait_until 30 "the TLS proxy" "$pid" "$SCRATCH/tls-proxy.log" accepts_connections "127.0.0.1:$port"
}

check_logs() {
    local pid log failed=0
    for pid in "${PIDS[@]}"; do
        if ! kill -0 "$pid" 2>/dev/null; then
            say "FAILED: a server (process $pid) ended during the suite"
            failed=1
        fi
    done
    for log in "${LOGS[@]}"; do
        if grep -nE "panicked at|stack overflow|SIGSEGV|RUST_BACKTRACE" "$log" >&2; then
            say "FAILED: a panic in $log"
            failed=1
        fi
    done
    return "$failed"
}

# Lists the services that stdio gateways started. They are no children of this
# shell, so they are found by the scratch HOME in their environment.
strays() {
    local environ
    for environ in /proc/[0-9]*/environ; do
        if tr '\0' '\n' 2>/dev/null <"$environ" | grep -qxF "HOME=$SCRATCH/home"; then
            local pid=${environ#/proc/}
            pid=${pid%/environ}
            local exe
            exe=$(readlink "/proc/$pid/exe" 2>/dev/null) || continue
            [[ ${exe% (deleted)} == "$SERVICE" || ${exe% (deleted)} == "$GATEWAY" ]] && echo "$pid"
        fi
    done
    return 0
}

stop_everything() {
    local status=$? pid deadline
    trap - EXIT
    for pid in "${PIDS[@]}" $(strays); do
        kill "$pid" 2>/dev/null
    done
    deadline=$((SECONDS + 60))
    for pid in "${PIDS[@]}"; do
        while kill -0 "$pid" 2>/dev/null && ((SECONDS < deadline)); do
            sleep 0.05
        done
        if kill -KILL "$pid" 2>/dev/null; then
            say "FAILED: a server (process $pid) did not end within 60 s after SIGTERM"
            [[ $status != 0 ]] || status=1
        fi
        wait "$pid" 2>/dev/null
    done
    if [[ $status != 0 ]]; then
        local saved=$CACHE/logs/last-failure
        rm -rf "$saved"
        mkdir -p "$saved"
        cp "$SCRATCH"/*.log "$saved" 2>/dev/null && say "server logs kept in $saved"
    fi
    [[ -n ${KEEP_SCRATCH:-} ]] && say "kept $SCRATCH" || rm -rf "$SCRATCH"
    exit "$status"
}
