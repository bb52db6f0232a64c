//! Tests of the SQLite store through its public interface.

mod arrange;
mod cancelling;
mod changes;
mod damage;
mod full_disk;
mod groups;
mod opening;
mod predecessor;
mod transfer;
mod vectors;
