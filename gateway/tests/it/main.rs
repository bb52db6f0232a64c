//! The gateway against a context service that records what it is asked and answers from a script.

mod arguments;
mod catalogue;
mod documents;
mod errors;
mod fake;
mod http;
mod local;
mod session;
mod stdio;
