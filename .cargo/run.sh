#!/bin/sh
# Runs a binary that cargo has built; before the service, builds the gateway beside it (see config.toml).
set -eu
case "$1" in
*/release/context-service | */debug/context-service)
    directory=$(dirname "$1")
    profile=$(basename "$directory")
    [ "$profile" = debug ] && profile=dev
    # What cargo tells the program it runs would tell build scripts that everything has changed, and the next build again.
    for name in $(env | sed -n 's/^\(CARGO_\(PKG_\|MANIFEST_\|BIN_NAME\|CRATE_NAME\|PRIMARY_\)[A-Z_]*\)=.*/\1/p'); do
        unset "$name"
    done
    # The features are those of the default members, as they were for the service: nothing is built twice.
    [ -e "$directory/context-gateway" ] || echo "Building the MCP gateway beside the service" >&2
    "${CARGO:-cargo}" build --profile "$profile" --bin context-gateway --target-dir "$(dirname "$directory")" >&2
    ;;
esac
exec "$@"
