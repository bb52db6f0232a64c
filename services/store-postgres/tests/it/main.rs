//! The PostgreSQL store as its callers see it. Without a server these tests are skipped; see `context-test-postgres`.

mod arrange;
mod availability;
mod behaviours;
mod cancelling;
mod damage;
mod discipline;
mod faults;
mod keys;
mod opening;
mod plans;
mod pooler;
mod prepared;
mod property;
mod proxy;
mod schema;
mod sent_sql;
mod standby;
mod tls;
mod transfer;
mod vectors;
