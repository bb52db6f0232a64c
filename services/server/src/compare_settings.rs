//! Compares the settings of this process with those of the running service, for a gateway.
//!
//! A service that a gateway started has that gateway's environment. The next gateway may have other settings. Either
//! the service stops, so that the gateway starts it with its own, or the user is told which settings have no effect.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long the command waits until the service has stopped"
)]

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use context_model::{Error, Reason};
use http::StatusCode;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admin::{POLL, post_json};
use crate::check_settings::check_settings;
use crate::config::{Config, Difference, Predecessor, ReportedSetting, Settings, compare};
use crate::connections::Connections;
use crate::json_body::read_json;
use crate::origin::Origin;
use crate::problem::Problem;
use crate::rest;

/// The route of the settings. Only the Unix socket serves it.
pub const SETTINGS_ROUTE: &str = "/internal/settings";
/// The route that asks a service without clients to stop. Only the Unix socket serves it.
pub const STOP_UNUSED_ROUTE: &str = "/internal/stop-unused";

/// Length of a nonce in bytes.
const NONCE_BYTES: usize = 32;
/// The largest request, in bytes.
const MAX_REQUEST_BYTES: usize = 1024;
/// How long `stop_unused` waits for clients that are disconnecting.
const LEAVING: Duration = Duration::from_millis(200);
/// How long the running service may take to respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the running service may take until it accepts no more connections.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of differences that the warning for the agent names.
const MAX_NAMED: usize = 10;

/// The state of the two routes.
pub struct Served {
    /// The service's settings.
    pub settings: Settings,
    /// Whether a gateway started the service.
    pub auto_started: bool,
    /// Its connections.
    pub connections: Connections,
    /// Stops the service.
    pub stop: CancellationToken,
}

/// A request for the settings of the running service.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsRequest {
    /// The key of the HMACs, in hexadecimal.
    nonce: String,
}

/// The settings of the running service.
#[derive(Debug, Serialize, Deserialize)]
struct SettingsResponse {
    auto_started: bool,
    /// Whether there are connections besides that of this request.
    other_clients: bool,
    settings: Vec<ReportedSetting>,
}

/// Responds with the settings of this service.
pub async fn report_settings(State(served): State<Arc<Served>>, request: Request) -> Response {
    if !Origin::is_unix(&request) {
        return rest::not_found(request).await.into_response();
    }
    let key = async {
        let SettingsRequest { nonce } = read_json(request, MAX_REQUEST_BYTES).await?;
        key_of(&nonce)
            .ok_or_else(|| Error::invalid("nonce", "`nonce` must have 64 hexadecimal digits"))
    };
    match key.await {
        Ok(key) => axum::Json(SettingsResponse {
            auto_started: served.auto_started,
            other_clients: *served.connections.watch().borrow() > 1,
            settings: served.settings.reported(&key),
        })
        .into_response(),
        Err(error) => Problem::from(error).into_response(),
    }
}

/// Stops this service if a gateway started it and only the caller is connected.
pub async fn stop_unused(State(served): State<Arc<Served>>, request: Request) -> Response {
    if !Origin::is_unix(&request) {
        return rest::not_found(request).await.into_response();
    }
    let mut open = served.connections.watch();
    let _ = tokio::time::timeout(LEAVING, open.wait_for(|open| *open <= 1)).await;
    if !served.auto_started || !served.connections.drain_if_alone() {
        let sentence = "this service was started by hand, or other clients use it";
        return Problem::from(Error::new(Reason::FeatureUnavailable, sentence)).into_response();
    }
    tracing::info!(
        "Stopping: a gateway with other settings asked for it, and no client is connected"
    );
    served.stop.cancel();
    StatusCode::OK.into_response()
}

/// The key that a nonce in hexadecimal stands for.
fn key_of(nonce: &str) -> Option<hmac::Key> {
    let digits = nonce.as_bytes();
    if digits.len() != 2 * NONCE_BYTES {
        return None;
    }
    let bytes: Option<Vec<u8>> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect();
    Some(hmac::Key::new(hmac::HMAC_SHA256, &bytes?))
}

/// Options of the comparison.
#[derive(Debug, Clone, Copy)]
pub struct CompareOptions {
    /// Compare only what is set for this process, even if a gateway started the service.
    pub explicit_only: bool,
    /// Ask a service that a gateway started and no client uses to stop if settings differ.
    pub may_stop: bool,
}

/// The outcome, for the gateway.
#[derive(Debug, Default, Serialize)]
pub struct Comparison {
    /// The running service. `None` if there is none.
    service: Option<Service>,
    /// Whether the service is stopping because of the differences.
    stopped: bool,
    differences: Vec<Difference>,
    /// Lines for the log.
    log: Vec<String>,
    /// The warning for the agent, if there is one.
    warning: Option<String>,
}

#[derive(Debug, Serialize)]
struct Service {
    /// Its process id, as seen from this process.
    pid: Option<i32>,
    auto_started: bool,
    other_clients: bool,
}

/// Compares the settings of this process with those of the service on its socket. There are no differences without a
/// service, or if the service does not report its settings.
pub async fn compare_running(
    config: &Config,
    predecessor: &Predecessor,
    options: CompareOptions,
) -> Comparison {
    let Ok(stream) = UnixStream::connect(config.socket()).await else {
        return Comparison::default();
    };
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let mut found = Comparison {
        service: Some(Service {
            pid,
            auto_started: false,
            other_clients: true,
        }),
        ..Comparison::default()
    };
    let Some((key, response)) = request_settings(stream).await else {
        return found;
    };
    let explicit_only = options.explicit_only || !response.auto_started;
    found.differences = compare(&config.settings, &response.settings, &key, explicit_only);
    found.service = Some(Service {
        pid,
        auto_started: response.auto_started,
        other_clients: response.other_clients,
    });
    if found.differences.is_empty() {
        return found;
    }
    let problem = problem(config, predecessor);
    let may_be_stopped = response.auto_started && !options.explicit_only;
    found.stopped = may_be_stopped && options.may_stop && problem.is_none() && stop(config).await;
    found.describe(problem, may_be_stopped);
    found
}

/// Why a service that a gateway starts could not start with these settings.
fn problem(config: &Config, predecessor: &Predecessor) -> Option<String> {
    let mut config = config.clone();
    config.auto_started = true;
    let checked = check_settings(&config).and_then(|()| predecessor.check(&config));
    checked.err()
}

/// Requests the settings of the service. `None` if it does not report them.
async fn request_settings(stream: UnixStream) -> Option<(hmac::Key, SettingsResponse)> {
    let mut nonce = [0; NONCE_BYTES];
    SystemRandom::new().fill(&mut nonce).ok()?;
    let nonce: String = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = key_of(&nonce)?;
    let body = serde_json::to_string(&SettingsRequest { nonce }).ok()?;
    let reply = post_json(stream, SETTINGS_ROUTE, &body);
    let response = tokio::time::timeout(RESPONSE_TIMEOUT, reply).await.ok()?;
    Some((key, serde_json::from_str(&response.ok()?).ok()?))
}

/// Requests the service to stop. Returns whether it does. If so, waits until it accepts no more connections, but not
/// longer than [`STOP_TIMEOUT`].
async fn stop(config: &Config) -> bool {
    let socket = config.socket();
    let Ok(stream) = UnixStream::connect(&socket).await else {
        return true;
    };
    let response = post_json(stream, STOP_UNUSED_ROUTE, "");
    let Ok(Ok(_)) = tokio::time::timeout(RESPONSE_TIMEOUT, response).await else {
        return false;
    };
    let deadline = Instant::now() + STOP_TIMEOUT;
    while UnixStream::connect(&socket).await.is_ok() && Instant::now() < deadline {
        tokio::time::sleep(POLL).await;
    }
    true
}

impl Comparison {
    /// Writes the lines for the log and the warning.
    fn describe(&mut self, problem: Option<String>, may_be_stopped: bool) {
        let listed: Vec<String> = self.differences.iter().map(ToString::to_string).collect();
        let lines = listed.iter().map(|line| format!("  {line}"));
        if self.stopped {
            let head = "no other client used the context service of this database, so it is restarted with the settings of this gateway:";
            self.log = std::iter::once(head.to_owned()).chain(lines).collect();
            return;
        }
        let (why, remedy) = match problem {
            Some(problem) => (
                format!(
                    "the settings of this gateway cannot be used ({problem}), so those of the running context service stay in effect"
                ),
                "correct the settings of this gateway and start it again",
            ),
            None if may_be_stopped => (
                "another gateway started the context service of this database with other settings. They stay in effect, because other \
                 clients use it"
                    .to_owned(),
                "give all clients of this database the same settings, or close the other clients and start this one again",
            ),
            None => (
                "the context service of this database was started with other settings, and they stay in effect".to_owned(),
                "change the settings where that service is started and restart it, or remove them here",
            ),
        };
        self.log = std::iter::once(format!("{why}:"))
            .chain(lines)
            .chain([format!("To change that, {remedy}.")])
            .collect();
        let more = listed.len().saturating_sub(MAX_NAMED);
        let named = listed[..listed.len() - more].join("; ");
        let more = match more {
            0 => String::new(),
            more => format!("; and {more} more, which the gateway's log names"),
        };
        self.warning = Some(format!(
            "Warning about the configuration of this MCP server, for the user: {why}. {named}{more}. To change that, {remedy}."
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_is_exactly_64_hexadecimal_digits() {
        assert!(key_of(&"0f".repeat(NONCE_BYTES)).is_some());
        for bad in [
            "",
            "0f",
            &"0f".repeat(33),
            &"zz".repeat(NONCE_BYTES),
            &"é".repeat(NONCE_BYTES),
        ] {
            assert!(key_of(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_warning_names_ten_settings_and_the_log_all() {
        let mut found = Comparison {
            differences: (0..12)
                .map(|number| Difference {
                    name: format!("SETTING_{number}"),
                    own: Some("x".repeat(500)),
                    of_service: None,
                })
                .collect(),
            ..Comparison::default()
        };
        found.describe(None, true);
        let warning = found.warning.unwrap();
        assert!(
            warning.contains("SETTING_9") && warning.contains("and 2 more"),
            "{warning}"
        );
        assert!(
            !warning.contains("SETTING_10") && warning.len() < 2500,
            "{warning}"
        );
        assert_eq!(found.log.len(), 14, "{:?}", found.log);
    }
}
