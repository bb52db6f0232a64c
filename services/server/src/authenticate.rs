//! Authenticating a request by its headers.

use context_engine::Authenticated;
use context_model::{Operation, Reason, Result};
use http::{HeaderMap, header};

use crate::app::App;
use crate::who::unauthenticated;

/// What a caller over its rate tried: the rate is that of all operations together.
const ANY_OPERATION: &str = "any";

/// The holder of a request's credentials; `None` while authentication is off. Counts the request against its key's rate.
///
/// # Errors
/// `UNAUTHENTICATED`; `RATE_LIMITED`; what keeps the credentials from being checked.
pub async fn authenticate(
    app: &App,
    headers: &HeaderMap,
    operation: Option<Operation>,
) -> Result<Option<Authenticated>> {
    let Some(authenticator) = &app.authenticator else {
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
    // The gateway asks who the caller is before each call, which is to count once.
    if operation != Some(Operation::GetCaller) {
        authenticator
            .count(&holder)
            .inspect_err(|error| authenticator.denied(&holder, ANY_OPERATION, error.reason))?;
    }
    Ok(Some(holder))
}

/// The one `Authorization` header; two of them are none.
fn credentials(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}
