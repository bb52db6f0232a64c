//! Connections to the server, their statement caches, the pool, TLS, and the classification of errors.

pub(crate) mod breaker;
mod channel_binding;
pub(crate) mod connection;
pub(crate) mod driver;
pub(crate) mod dsl;
pub(crate) mod failure;
pub(crate) mod hosts;
pub(crate) mod pool;
pub(crate) mod sql;
pub(crate) mod statement_cache;
pub(crate) mod target;
pub(crate) mod tls;
