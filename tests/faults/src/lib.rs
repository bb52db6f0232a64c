//! What the service promises when things break: processes killed at any moment, power cuts, full disks, damaged files,
//! too many requests, clients that vanish.
//!
//! [`Ledger`](ledger::Ledger) remembers what was acknowledged, [`load`] makes the requests of many writers,
//! [`audit`](audit::audit) recounts a database from its entries, [`Disk`](disk::Disk) loses what was not synced, and
//! [`process`] runs the real binaries.
//!
//! Every test prints its seed; `CONTEXT_FAULTS_SEED` repeats it.

pub mod audit;
pub mod blocker;
pub mod content;
pub mod disk;
pub mod door;
pub mod gateway;
pub mod http;
pub mod ledger;
pub mod load;
pub mod process;
pub mod random;
