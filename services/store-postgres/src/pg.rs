//! The way to the server: connections and the statements they keep prepared, the pool, TLS, and what an error means.

pub(crate) mod breaker;
pub(crate) mod connection;
pub(crate) mod driver;
pub(crate) mod dsl;
pub(crate) mod failure;
pub(crate) mod pool;
pub(crate) mod sql;
pub(crate) mod statement_cache;
pub(crate) mod target;
pub(crate) mod tls;
