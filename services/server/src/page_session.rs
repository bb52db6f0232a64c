//! The sessions of pages on a port of their own ([`page_port`](crate::page_port)).
//!
//! Every process of the machine can reach a loopback port, so a request needs a token. The token is never in a URL,
//! where other processes and the browser's history could read it. The URL contains a ticket, which can be exchanged
//! once for a token.

#![expect(clippy::disallowed_methods, reason = "measures how old a ticket is")]

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use context_model::{Error, Reason, Result};
use http::{HeaderMap, header};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::banner::StartReport;
use crate::json_body::read_json;
use crate::problem::Problem;

/// The route at which a page exchanges its ticket for a token.
const SESSION_ROUTE: &str = "/ui/session";

/// How long a ticket is valid: the browser may have to start.
const TICKET_LIFETIME: Duration = Duration::from_secs(300);
/// Maximum number of valid tickets. A further one replaces the oldest.
const MAX_TICKETS: usize = 16;
/// Maximum number of valid tokens. A further one replaces the oldest.
const MAX_TOKENS: usize = 64;
/// Number of random bytes in a ticket or token.
const SECRET_BYTES: usize = 32;
/// The largest request for a token, in bytes.
const MAX_REQUEST_BYTES: usize = 1024;

/// The SHA-256 of a ticket or token. The time of a comparison of hashes reveals nothing about the secret.
type Hash = Vec<u8>;

/// The valid tickets and tokens, and what a page learns about the service.
pub struct PageSessions {
    valid: Mutex<Valid>,
    socket: PathBuf,
    gateway_environment: BTreeMap<&'static str, String>,
}

#[derive(Default)]
struct Valid {
    /// Oldest first.
    tickets: VecDeque<(Hash, Instant)>,
    /// Oldest first.
    tokens: VecDeque<Hash>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    ticket: String,
}

#[derive(Serialize)]
struct Session<'s> {
    token: String,
    /// For clients on this machine: the port is only for the page.
    socket: &'s Path,
    /// The variables with which a gateway finds this service.
    gateway_environment: &'s BTreeMap<&'static str, String>,
}

impl PageSessions {
    /// No sessions yet.
    #[must_use]
    pub fn new(report: &StartReport) -> Self {
        Self {
            valid: Mutex::default(),
            socket: report.socket.clone(),
            gateway_environment: report.gateway_environment(),
        }
    }

    /// A new ticket.
    ///
    /// # Errors
    /// `INTERNAL` if the system has no random bytes.
    pub fn ticket(&self) -> Result<String> {
        let ticket = secret()?;
        let mut valid = self.valid();
        if valid.tickets.len() == MAX_TICKETS {
            valid.tickets.pop_front();
        }
        valid.tickets.push_back((hash(&ticket), Instant::now()));
        Ok(ticket)
    }

    /// A token for a valid ticket, which is then used up.
    ///
    /// # Errors
    /// `PAGE_CLOSED` if the ticket is unknown, used or too old.
    pub fn exchange(&self, ticket: &str) -> Result<String> {
        let given = hash(ticket);
        let token = secret()?;
        let mut valid = self.valid();
        valid
            .tickets
            .retain(|(_, made)| made.elapsed() < TICKET_LIFETIME);
        let index = valid
            .tickets
            .iter()
            .position(|(ticket, _)| *ticket == given)
            .ok_or_else(closed)?;
        valid.tickets.remove(index);
        if valid.tokens.len() == MAX_TOKENS {
            valid.tokens.pop_front();
        }
        valid.tokens.push_back(hash(&token));
        Ok(token)
    }

    /// Accepts a request with a valid token.
    ///
    /// # Errors
    /// `PAGE_CLOSED`.
    pub fn check(&self, headers: &HeaderMap) -> Result<()> {
        let given = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "))
            .map(hash)
            .ok_or_else(closed)?;
        if self.valid().tokens.contains(&given) {
            Ok(())
        } else {
            Err(closed())
        }
    }

    /// Ends all sessions.
    pub fn clear(&self) {
        *self.valid() = Valid::default();
    }

    /// Adds the route at which a page exchanges its ticket.
    pub fn routes(self: &Arc<Self>, router: Router) -> Router {
        router.route(SESSION_ROUTE, post(begin).with_state(self.clone()))
    }

    fn valid(&self) -> MutexGuard<'_, Valid> {
        self.valid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn begin(State(sessions): State<Arc<PageSessions>>, request: Request) -> Response {
    let exchange = async {
        let Exchange { ticket } = read_json(request, MAX_REQUEST_BYTES).await?;
        sessions.exchange(&ticket)
    };
    match exchange.await {
        Ok(token) => axum::Json(Session {
            token,
            socket: &sessions.socket,
            gateway_environment: &sessions.gateway_environment,
        })
        .into_response(),
        Err(error) => Problem::from(error).into_response(),
    }
}

fn secret() -> Result<String> {
    let mut bytes = [0; SECRET_BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Error::new(Reason::Internal, "the system has no random bytes"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn hash(secret: &str) -> Hash {
    digest(&SHA256, secret.as_bytes()).as_ref().to_vec()
}

fn closed() -> Error {
    let sentence = "this page is closed: its link was used before, or is older than five minutes, or the service was \
                    started again; open it again with `context-gateway open`";
    Error::new(Reason::PageClosed, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions() -> PageSessions {
        PageSessions {
            valid: Mutex::default(),
            socket: PathBuf::new(),
            gateway_environment: BTreeMap::new(),
        }
    }

    fn with(token: &str) -> HeaderMap {
        HeaderMap::from_iter([(
            header::AUTHORIZATION,
            format!("Bearer {token}").parse().unwrap(),
        )])
    }

    #[tokio::test(start_paused = true)]
    async fn a_ticket_is_good_for_one_token_within_five_minutes() {
        let sessions = sessions();
        let ticket = sessions.ticket().unwrap();
        assert!(
            sessions.check(&with(&ticket)).is_err(),
            "a ticket is no token"
        );
        let token = sessions.exchange(&ticket).unwrap();
        assert!(sessions.check(&with(&token)).is_ok());
        assert!(sessions.exchange(&ticket).is_err(), "used");
        assert!(sessions.exchange(&token).is_err(), "a token is no ticket");
        let late = sessions.ticket().unwrap();
        tokio::time::advance(TICKET_LIFETIME).await;
        assert!(sessions.exchange(&late).is_err(), "too old");
        assert!(sessions.check(&with(&token)).is_ok(), "tokens last");
        for headers in [HeaderMap::new(), with(""), with(&token.to_uppercase())] {
            assert!(sessions.check(&headers).is_err(), "{headers:?}");
        }
        sessions.clear();
        assert!(sessions.check(&with(&token)).is_err());
    }

    #[test]
    fn tickets_and_tokens_are_bounded() {
        let sessions = sessions();
        let tickets: Vec<_> = (0..=MAX_TICKETS)
            .map(|_| sessions.ticket().unwrap())
            .collect();
        assert!(sessions.exchange(&tickets[0]).is_err());
        let first = sessions.exchange(&tickets[1]).unwrap();
        for _ in 0..MAX_TOKENS {
            let ticket = sessions.ticket().unwrap();
            sessions.exchange(&ticket).unwrap();
        }
        assert!(sessions.check(&with(&first)).is_err());
        assert_eq!(sessions.valid().tokens.len(), MAX_TOKENS);
    }
}
