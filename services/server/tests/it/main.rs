//! Tests of the service through its public interfaces. Each test starts a service on a free port.

mod conditional;
mod config_command;
mod contexts;
mod doctor;
mod documents;
mod edge;
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
mod semantic;
mod service;
mod summaries;
mod who;
