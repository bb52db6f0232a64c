#!/bin/sh
# Runs a binary that cargo has built; before the service, builds the binaries beside it (see config.toml).
set -eu
case "$1" in
*/release/context-service | */debug/context-service)
    directory=$(dirname "$1")
    profile=$(basename "$directory")
    [ "$profile" = debug ] && profile=dev
    # Quiet and quick when there is nothing to build; cargo says so itself when there is.
    "${CARGO:-cargo}" build --profile "$profile" --bins --target-dir "$(dirname "$directory")" >&2
    ;;
esac
exec "$@"
