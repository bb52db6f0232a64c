//! Authentication, authorization, quotas and idempotency keys.
//!
//! - `authenticator` turns the `Authorization` header of a request into a `caller`. For a key it asks `verifier` and
//!   caches the result, for a token it asks `tokens`. It also applies the `rate` limit.
//! - `caller` says what a caller may do.
//! - `keys` has the operations on API keys, and `operator` the commands of the operator. `key_secret` is the text of a
//!   key, and `stored_key` converts its row.
//! - `write` prepares each write: idempotency key (`request_hash`) and `quota`.
//! - `refusals` writes refused requests to the logs.

mod authenticator;
mod caller;
mod key_secret;
mod keys;
mod operator;
mod quota;
mod rate;
mod refusals;
mod request_hash;
mod stored_key;
mod tokens;
mod verifier;
mod write;

pub use authenticator::{Authenticated, Authenticator};
pub use caller::{AUTHENTICATION_REQUIRED, Caller, Reach};
pub use operator::{AUDIT_LINES, Admin, ValidKey};
pub use quota::Quotas;
pub(crate) use quota::{Admitted, path_bytes, stored_bytes, version_bytes};
pub use rate::Rate;
pub use tokens::{TokenRules, Tokens, issuer_prefix};
pub use write::WriteContext;
pub(crate) use write::Writes;

use std::sync::Arc;

use context_store::Store;

use crate::clock::Clock;
use refusals::Refusals;

/// API keys, the authenticator, and the operator's commands.
pub struct Access {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    refusals: Arc<Refusals>,
    /// Whether callers need a key or token.
    is_enforced: bool,
}

impl Access {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, is_enforced: bool) -> Self {
        Self {
            refusals: Arc::new(Refusals::new(store.clone(), clock.clone())),
            store,
            clock,
            is_enforced,
        }
    }

    /// Writes the counted refusals to the audit log; for shutdown.
    pub(crate) async fn flush(&self) {
        self.refusals.flush().await;
    }
}
