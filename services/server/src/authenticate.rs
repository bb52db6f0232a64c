//! Authenticates a request by its headers.

use context_engine::{Authenticated, Caller};
use context_model::{Operation, Reason, Result};
use http::{HeaderMap, header};

use crate::app::App;
use crate::logging;
use crate::request_context::{RequestContext, unauthenticated};

/// The operation in the audit log when a caller exceeds its rate: the rate covers all operations
/// together.
const ANY_OPERATION: &str = "any";

/// The authenticated caller; `None` if authentication is off. Counts the request against the rate
/// limit of its key, except for `GetCaller`.
///
/// # Errors
/// `UNAUTHENTICATED`; `RATE_LIMITED`; the error that prevented the check.
pub async fn authenticate(
    app: &App,
    headers: &HeaderMap,
    operation: Option<Operation>,
) -> Result<Option<Authenticated>> {
    let Some(authenticator) = &app.authenticator else {
        logging::note_caller(None);
        return Ok(None);
    };
    let outcome = match credentials(headers) {
        Some(header) => authenticator.authenticate(header).await,
        None => Err(unauthenticated()),
    };
    if outcome
        .as_ref()
        .is_err_and(|error| error.reason == Reason::Unauthenticated)
    {
        app.metrics.authentication_failures.inc();
        authenticator.refused_unknown();
    }
    let holder = outcome?;
    logging::note_caller(Some(&holder.caller));
    // The gateway calls GetCaller before each operation; the pair must count once.
    if operation != Some(Operation::GetCaller) {
        authenticator
            .count(&holder)
            .inspect_err(|error| authenticator.denied(&holder, ANY_OPERATION, error.reason))?;
    }
    Ok(Some(holder))
}

/// The credentials of a request that can last longer than they are valid.
pub struct Credentials(Option<String>);

impl Credentials {
    /// The credentials in these headers.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        Self(credentials(headers).map(str::to_owned))
    }

    /// The value of the `Authorization` header.
    #[must_use]
    pub fn header(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// The caller of this operation with the rights that its credentials have now. The key is found in memory; the
    /// database is read at most twice a second.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` if they are no longer valid; `SCOPE_MISSING`; the error that prevented the check.
    pub async fn caller(
        &self,
        app: &App,
        ctx: &RequestContext,
        operation: Operation,
    ) -> Result<Caller> {
        let before = ctx.caller();
        let Some(authenticator) = &app.authenticator else {
            return Ok(before.clone());
        };
        let header = self.0.as_deref().ok_or_else(unauthenticated)?;
        let holder = authenticator.authenticate(header).await?;
        let caller = Caller {
            memory: before.memory.clone(),
            ..Caller::clone(&holder.caller)
        };
        caller.require(operation)?;
        Ok(caller)
    }
}

/// The value of the `Authorization` header; `None` if it is missing, sent twice, or not visible ASCII.
fn credentials(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}
