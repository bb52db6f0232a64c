//! Runs the behaviours of the conformance suite on PostgreSQL. Without a server they are skipped; see
//! `context-test-postgres`.

#[path = "it/arrange.rs"]
mod arrange;
#[path = "it/behaviours.rs"]
mod behaviours;

fn main() -> std::process::ExitCode {
    context_store_conformance::run(behaviours::open)
}
