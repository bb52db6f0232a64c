//! Authenticates a request by its headers.

use context_engine::Authenticated;
use context_model::{Operation, Reason, Result};
use http::{HeaderMap, header};

use crate::app::App;
use crate::logging;
use crate::who::unauthenticated;

/// The operation in the audit log when a caller exceeds its rate: the rate covers all operations
/// together.
const ANY_OPERATION: &str = "any";

/// The authenticated caller; `None` if authentication is off. Counts the request against the rate
/// limit of its key.
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

/// The value of the `Authorization` header; `None` if it is missing or sent twice.
fn credentials(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}
