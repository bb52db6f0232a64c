//! The operator's commands. The service that serves the database executes them; if none runs, this
//! process does.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long the command waits for a database in use"
)]

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use context_engine::{Admin, Engine, SystemClock};
use context_store::Store;
use context_store_postgres::PostgresStore;
use context_store_sqlite::OpenError;
use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::app::App;
use crate::config::{Backend, Config};
use crate::json_body::read_json;
use crate::open::try_open;
use crate::origin::Origin;
use crate::problem::Problem;
use crate::rest;
use crate::start_error::StartError;

/// The route of the commands. Only the Unix socket serves it, to which only the user of the
/// service and root can connect.
pub const ADMIN_ROUTE: &str = "/internal/admin";

const MAX_COMMAND_BYTES: usize = 64 * 1024;

/// How long a command waits while a service starts or stops.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two attempts while it waits.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Executes a command and responds with the text to print.
pub async fn administer(State(app): State<Arc<App>>, request: Request) -> Response {
    if !Origin::is_unix(&request) {
        return rest::not_found(request).await.into_response();
    }
    let run = async {
        let command = read_json(request, MAX_COMMAND_BYTES).await?;
        app.engine.access.administer(command).await
    };
    match run.await {
        Ok(text) => (StatusCode::OK, text).into_response(),
        Err(error) => Problem::from(error).into_response(),
    }
}

/// Runs a command on the configured database and returns the text to print.
///
/// # Errors
/// A sentence to print.
pub async fn command(config: &Config, command: Admin) -> Result<String, String> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    let store = loop {
        if let Ok(stream) = UnixStream::connect(config.socket()).await {
            let command = serde_json::to_string(&command).map_err(|e| e.to_string())?;
            return post_json(stream, ADMIN_ROUTE, &command).await;
        }
        match open(config).await {
            Ok(store) => break store,
            // While a service starts or stops, it holds the database lock and has no socket.
            Err(StartError::Database(OpenError::Held { .. })) if Instant::now() < deadline => {
                tokio::time::sleep(POLL).await
            }
            Err(error) => return Err(error.to_string()),
        }
    };
    let engine =
        Engine::new(store, config.engine(), Arc::new(SystemClock)).map_err(|e| e.to_string())?;
    let outcome = engine
        .access
        .administer(command)
        .await
        .map_err(|e| e.to_string());
    engine.close().await;
    outcome
}

/// Opens the database without asking a running service to release it.
pub(crate) async fn open(config: &Config) -> Result<Arc<dyn Store>, StartError> {
    match config.storage.storage_backend {
        Backend::Sqlite => Ok(Arc::new(try_open(config).await?)),
        Backend::Postgresql => {
            let mut settings = config
                .postgres()
                .map_err(|error| StartError::Settings(error.to_string()))?;
            settings.builds_indexes = false;
            Ok(Arc::new(PostgresStore::open(settings).await?))
        }
    }
}

/// Posts JSON to a running service and returns its response.
///
/// # Errors
/// A sentence to print.
pub(crate) async fn post_json(
    mut stream: UnixStream,
    route: &str,
    body: &str,
) -> Result<String, String> {
    let request = format!(
        "POST {route} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut reply = Vec::new();
    let exchange = async {
        stream.write_all(request.as_bytes()).await?;
        stream.read_to_end(&mut reply).await
    };
    exchange
        .await
        .map_err(|e| format!("the service that serves this database did not respond: {e}"))?;
    let reply = String::from_utf8_lossy(&reply);
    let (head, body) = reply
        .split_once("\r\n\r\n")
        .filter(|(head, body)| content_length(head).is_none_or(|length| length == body.len()))
        .ok_or("the service that serves this database sent an incomplete response")?;
    if head.starts_with("HTTP/1.1 200") {
        return Ok(body.to_owned());
    }
    let problem: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    Err(problem["detail"]
        .as_str()
        .unwrap_or("the service that serves this database refused the command")
        .to_owned())
}

/// The length of a body, as its head states it.
fn content_length(head: &str) -> Option<usize> {
    let mut headers = head.lines().filter_map(|line| line.split_once(':'));
    let (_, length) = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    length.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_response_that_ends_early_is_not_printed_as_a_whole_one() {
        for (body, is_whole) in [("line 1\nline 2\n", true), ("line 1\n", false)] {
            let (stream, mut service) = UnixStream::pair().unwrap();
            let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{body}");
            service.write_all(reply.as_bytes()).await.unwrap();
            service.shutdown().await.unwrap();
            let printed = post_json(stream, ADMIN_ROUTE, "{}").await;
            assert_eq!(printed.is_ok_and(|text| text == body), is_whole, "{body}");
        }
    }
}
