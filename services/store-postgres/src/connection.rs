//! Connecting to the server.

use std::time::Duration;

use diesel_async::{AsyncPgConnection, SimpleAsyncConnection as _};

use crate::target::Target;
use crate::tls::Tls;

/// How long a connection may be silent before the system asks whether the other side is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("{}", described(.0))]
    Driver(tokio_postgres::Error),
    #[error(transparent)]
    Setup(#[from] diesel::ConnectionError),
    #[error("there was no answer within {0:?}")]
    TimedOut(Duration),
}

/// The driver's chain in one line: its own message is only the last step.
fn described(error: &tokio_postgres::Error) -> String {
    if let Some(said) = error.as_db_error() {
        return said.message().to_owned();
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let further = error.to_string();
        if !text.contains(&further) {
            text.push_str(": ");
            text.push_str(&further);
        }
        cause = error.source();
    }
    text
}

/// A new connection.
pub(crate) async fn connect(target: &Target, tls: &Tls, timeout: Duration) -> Result<AsyncPgConnection, ConnectError> {
    let mut config = target.config.clone();
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(timeout);
    }
    config.keepalives_idle(KEEPALIVE_IDLE);
    // Each host has its own time to answer, and so has the conversation after that.
    let hosts = u32::try_from(config.get_hosts().len().max(config.get_hostaddrs().len())).unwrap_or(1);
    let limit = timeout.saturating_mul(hosts.saturating_add(1));
    let connecting = async {
        let (client, connection) = config.connect(tls.clone()).await.map_err(ConnectError::Driver)?;
        let mut conn = AsyncPgConnection::try_from_client_and_connection(client, connection).await?;
        // Errors are told apart by their text. Only superusers may choose its language; for others the server's stays.
        let _ = conn.batch_execute("SET lc_messages TO 'C'").await;
        Ok(conn)
    };
    tokio::time::timeout(limit, connecting).await.unwrap_or(Err(ConnectError::TimedOut(limit)))
}
