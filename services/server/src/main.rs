//! `context-service`: serves the context operations over gRPC and REST.

use std::process::ExitCode;

/// mimalloc, because replies consist of many small strings.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

// The program is in the library, because the compiler generates the code of an async function in every crate that
// polls it.
fn main() -> ExitCode {
    context_service::main()
}
