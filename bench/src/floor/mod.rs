//! The floors: the minimal implementations of the same work, to which the service is compared.

pub mod echo;
pub mod hop;
pub mod postgres;
pub mod search;
pub mod store;
pub mod vectors;
