//! Tests of the PostgreSQL store through its public interface, of its schema and of its statements. Those that need a
//! server are skipped without one; see `context-test-postgres`.

mod arrange;
mod availability;
mod behaviours;
mod cancelling;
mod damage;
mod discipline;
mod faults;
mod keys;
mod locks;
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
