//! Opens connections.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use futures::future::select;
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client, Connection, Socket};

use super::AsyncPgConnection;
use crate::pg::driver::Types;
use crate::pg::failure::DriverError;
use crate::pg::hosts;
use crate::pg::statement_cache::StatementCache;
use crate::pg::target::Target;
use crate::pg::tls::{Tls, TlsStream};

/// Idle time after which TCP keepalive checks whether the server is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// Timeout for closing a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why connecting failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(transparent)]
    Driver(DriverError),
    #[error("there was no response within {0:?}")]
    TimedOut(Duration),
}

/// Opens a connection.
pub(crate) async fn connect(
    target: &Target,
    tls: &Tls,
    timeout: Duration,
) -> Result<AsyncPgConnection, ConnectError> {
    connect_within(target, tls, timeout, Duration::MAX).await
}

/// Opens a connection for a caller that stops waiting after `total`. The hosts share this time equally, and the
/// addresses of a host share the host's part, so that addresses that do not respond leave time for the last one.
pub(crate) async fn connect_within(
    target: &Target,
    tls: &Tls,
    timeout: Duration,
    total: Duration,
) -> Result<AsyncPgConnection, ConnectError> {
    connect_with(target, tls, timeout, total, None).await
}

/// Opens a connection that sets `notified` when a notification arrives.
pub(crate) async fn connect_to_listen(
    target: &Target,
    tls: &Tls,
    timeout: Duration,
    notified: Arc<Notify>,
) -> Result<AsyncPgConnection, ConnectError> {
    connect_with(target, tls, timeout, Duration::MAX, Some(notified)).await
}

/// Connects to the first address of a host that accepts the connection. Like libpq, it gives each address of a name the
/// whole timeout, unless the address's share of `total` is shorter. The driver limits only the time of each TCP
/// connection: an address that accepts it and then does not respond would keep the driver from trying the next one.
async fn connect_to_one(
    config: &tokio_postgres::Config,
    tls: &Tls,
    timeout: Duration,
    total: Duration,
) -> Result<(Client, Connection<Socket, TlsStream<Socket>>), ConnectError> {
    let share = |time: Duration, of: usize| time / u32::try_from(of.max(1)).unwrap_or(u32::MAX);
    let hosts = hosts::each(config);
    let of_host = config.get_connect_timeout().copied().unwrap_or(timeout);
    let (is_single, part) = (hosts.len() == 1, share(total, hosts.len()));
    let lookup = of_host.min(part);
    let mut failure = ConnectError::TimedOut(lookup);
    for host in hosts {
        let Ok(addresses) = tokio::time::timeout(lookup, hosts::each_address(&host)).await else {
            failure = ConnectError::TimedOut(lookup);
            continue;
        };
        // A single address has this time twice: for TCP, and for TLS and the login.
        let limit = match is_single && addresses.len() == 1 {
            true => of_host.saturating_mul(2),
            false => of_host,
        };
        let limit = limit.min(share(part, addresses.len()));
        for address in addresses {
            match tokio::time::timeout(limit, address.connect(tls.clone())).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => failure = ConnectError::Driver(DriverError(error)),
                Err(_) => failure = ConnectError::TimedOut(limit),
            }
        }
    }
    Err(failure)
}

async fn connect_with(
    target: &Target,
    tls: &Tls,
    timeout: Duration,
    total: Duration,
    notified: Option<Arc<Notify>>,
) -> Result<AsyncPgConnection, ConnectError> {
    let mut config = target.config.clone();
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(timeout);
    }
    config.keepalives_idle(KEEPALIVE_IDLE);
    if config.get_tcp_user_timeout().is_none() {
        // If the server's machine disappears without closing the connection, the connection ends after this time.
        config.tcp_user_timeout(timeout.saturating_mul(2));
    }
    let (client, mut connection) = connect_to_one(&config, tls, timeout, total).await?;
    let (alive, dropped) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        // A server that does not respond must not block this task forever.
        let closed = async {
            let _ = dropped.await;
            tokio::time::sleep(CLOSE_TIMEOUT).await;
        };
        let receiving = poll_fn(|cx| {
            loop {
                match ready!(connection.poll_message(cx)) {
                    Some(Ok(AsyncMessage::Notification(_))) => {
                        notified.iter().for_each(|notified| notified.notify_one());
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Poll::Ready(()),
                }
            }
        });
        select(pin!(receiving), pin!(closed)).await;
    });
    Ok(AsyncPgConnection {
        client: Arc::new(client),
        cache: target.caches_statements.then(StatementCache::default),
        slow_searches: Arc::default(),
        has_session: false,
        types: Types::default(),
        in_flight: VecDeque::new(),
        in_transaction: false,
        _alive: alive,
    })
}
