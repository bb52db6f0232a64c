#!/bin/sh
# Runs a binary that cargo has built; before the service, builds the gateway beside it (see config.toml).
set -eu
case "$1" in
*/release/context-service | */debug/context-service)
    directory=$(dirname "$1")
    profile=$(basename "$directory")
    [ "$profile" = debug ] && profile=dev
    # Cargo sets these variables for the program that it runs. If the build below inherited them, it would rebuild the
    # crates whose build scripts depend on them, and so would the next build without them.
    for name in $(env | sed -n 's/^\(CARGO_\(PKG_\|MANIFEST_\|BIN_NAME\|CRATE_NAME\|PRIMARY_\)[A-Z_]*\)=.*/\1/p'); do
        unset "$name"
    done
    # Without --package, the features are those of the default members, as for the service, so nothing is built twice.
    [ -e "$directory/context-gateway" ] || echo "Building the MCP gateway beside the service" >&2
    "${CARGO:-cargo}" build --profile "$profile" --bin context-gateway --target-dir "$(dirname "$directory")" >&2
    ;;
esac
exec "$@"
