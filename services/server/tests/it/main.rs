//! Tests of the service through its public interfaces. Most tests start a service on a free port, in the test's process
//! (`service`) or as a program (`process`).

mod changes;
mod conditional;
mod config_command;
mod contexts;
mod credentials;
mod doctor;
mod documents;
mod edge;
mod follow;
mod grpc;
mod keys;
mod lifecycle;
mod limits;
mod migrate_data;
mod narrowed;
mod owners;
mod page;
mod postgres;
mod predecessor;
mod problems;
mod process;
mod quotas;
mod ranked;
mod request_log;
mod rerankers;
mod searched_artifacts;
mod semantic;
mod service;
mod summaries;
mod watch;
