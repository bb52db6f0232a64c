//! The guarantees of the service under faults: processes killed at any moment, power failures, full disks, damaged
//! files, too many requests, clients that disappear.
//!
//! [`Ledger`](ledger::Ledger) records what was acknowledged, [`load`] sends the requests of many writers,
//! [`audit`](audit::audit) recounts a database from its entries, and [`Disk`](disk::Disk) loses data that was not
//! synced. [`follow`] checks what readers of the changes receive. The real binaries are run by `context-test-support`.
//!
//! Tests with random choices print their seed. `CONTEXT_FAULTS_SEED` repeats the choices.

pub mod audit;
pub mod blocker;
pub mod client;
pub mod content;
pub mod disk;
pub mod follow;
pub mod ledger;
pub mod load;
