# Most recipes run steps of scripts/test, so that a laptop and CI run the same.

# Lists the recipes.
default:
    @just --list

# Formats the Rust code.
fmt:
    cargo fmt --all

# Checks the formatting, clippy's lints and the dependency tree.
lint:
    scripts/test fmt clippy tree

# Runs all Rust tests, documentation examples included.
test:
    scripts/test test doctest

# Runs every test and check.
test-all:
    scripts/test

# Writes the OpenAPI document to openapi/openapi.json and lints it.
openapi:
    cargo run --quiet --bin context-service -- openapi > openapi/openapi.json.new
    mv openapi/openapi.json.new openapi/openapi.json
    scripts/test spectral

# Builds the page at / into services/server/ui/dist.
ui:
    cd services/server/ui && npm ci --ignore-scripts --no-audit --no-fund && npm run check && npm run build

# Lints the protocol buffers.
proto:
    scripts/test proto

# Checks the licences, bans and sources of the dependencies.
deny:
    scripts/test tree deny

# Measures the `dist` build and the floors that it is compared with (docs/benchmarks.md).
bench *ARGS:
    cargo build --profile dist --workspace
    target/dist/context-bench {{ARGS}}
