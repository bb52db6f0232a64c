//! The service as its clients see it: each test starts one on a free port and talks to it.

mod conditional;
mod contexts;
mod documents;
mod edge;
mod grpc;
mod keys;
mod lifecycle;
mod limits;
mod migrate_data;
mod narrowed;
mod owners;
mod postgres;
mod problems;
mod process;
mod quotas;
mod ranked;
mod rerankers;
mod semantic;
mod service;
mod summaries;
mod who;
