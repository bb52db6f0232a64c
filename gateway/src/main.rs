//! `context-gateway`: the MCP gateway of the context service.

use std::process::ExitCode;

// The program is in the library, because the compiler generates the code of an async function in every crate that
// polls it.
fn main() -> ExitCode {
    context_gateway::main()
}
