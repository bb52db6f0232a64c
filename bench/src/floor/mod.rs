//! What the service is held against: the least that could do the same work.

pub mod echo;
pub mod hop;
pub mod postgres;
pub mod search;
pub mod store;
