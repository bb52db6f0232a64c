//! The caller and the memory lease of a request. The edge determines them before the body is read, and handlers extract
//! them.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use context_engine::{AUTHENTICATION_REQUIRED, Authenticated, Caller};
use context_model::{Error, Operation, Reason, Result};
use context_store::Memory;
use http::request::Parts;

use crate::memory::Lease;
use crate::origin::Peer;
use crate::problem::Problem;

/// The caller of a request, the lease that counts its memory, and whether it is a write.
#[derive(Clone)]
pub struct RequestContext {
    caller: Caller,
    /// The authenticated holder of the credentials; `None` if authentication is off.
    pub holder: Option<Authenticated>,
    /// Counts the memory of the request and its reply.
    pub lease: Arc<Lease>,
    is_write: bool,
}

impl RequestContext {
    /// Without a holder the caller is the owner `default`. Over TCP it cannot administer keys.
    #[must_use]
    pub fn new(
        holder: Option<Authenticated>,
        peer: Option<Peer>,
        operation: Option<Operation>,
        lease: Arc<Lease>,
    ) -> Self {
        let memory = Memory::counted_by(lease.clone());
        let caller = match (&holder, peer) {
            (Some(holder), _) => Caller::clone(&holder.caller),
            (None, Some(Peer::Unix)) => Caller::local(),
            (None, Some(Peer::Tcp) | None) => Caller::local_over_tcp(),
        };
        Self {
            caller: Caller { memory, ..caller },
            holder,
            lease,
            is_write: operation.is_some_and(Operation::is_write),
        }
    }

    /// Counts the memory of a reply. The reply of a write is never refused, because the write has taken effect.
    ///
    /// # Errors
    /// `OVERLOADED` if there is no memory for the reply of a read; `REQUEST_TOO_LARGE` if it alone exceeds the limit.
    pub fn count_reply(&self, bytes: usize) -> Result<()> {
        if self.is_write {
            self.lease.exceed(bytes);
            return Ok(());
        }
        self.lease.grow(bytes)
    }

    /// The caller, for the engine.
    #[must_use]
    pub const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The value that the edge stored in the request's extensions.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` if the edge stored none. So a route that bypasses the edge refuses every request.
    pub fn of(extensions: &http::Extensions) -> Result<Self> {
        extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(unauthenticated)
    }
}

impl<S: Sync> FromRequestParts<S> for RequestContext {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self::of(&parts.extensions)?)
    }
}

/// The lease that the edge attached to a request, with credentials or without.
///
/// # Errors
/// `INTERNAL` if it attached none: a bug.
pub fn lease(extensions: &http::Extensions) -> Result<Arc<Lease>> {
    let ctx = extensions.get::<RequestContext>();
    let lease = ctx.map(|ctx| &ctx.lease).or_else(|| extensions.get());
    lease.cloned().ok_or_else(|| Error::internal(NoLease))
}

#[derive(Debug, thiserror::Error)]
#[error("a request without a lease")]
struct NoLease;

/// The error for a request without valid credentials.
pub fn unauthenticated() -> Error {
    Error::new(Reason::Unauthenticated, AUTHENTICATION_REQUIRED)
}
