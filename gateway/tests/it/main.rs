//! The gateway against a fake context service that records requests and returns prepared replies. Some tests use
//! the real service instead.

mod arguments;
mod batches;
mod catalogue;
mod commands;
mod documents;
mod errors;
mod fake;
mod hooks;
mod http;
mod install;
mod local;
mod plugins;
mod recall;
mod secrets;
mod session;
mod settings;
mod stdio;
mod subscriptions;
mod tasks;
