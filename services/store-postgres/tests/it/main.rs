//! The PostgreSQL store as its callers see it. Without a server these tests are skipped; see `context-test-postgres`.

mod arrange;
mod availability;
mod cancelling;
mod conformance;
mod damage;
mod discipline;
mod faults;
mod keys;
mod opening;
mod plans;
mod pooler;
mod property;
mod proxy;
mod schema;
mod standby;
mod tls;
mod transfer;
mod vectors;
