//! API keys, owners, and the audit log.

mod audit;
mod erase;
mod rows;
mod store;

pub(crate) use erase::create as create_owner;
