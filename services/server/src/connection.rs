//! The state of each open connection: whether requests are in flight, and whether its peer receives
//! replies.

#![expect(
    clippy::disallowed_methods,
    reason = "measures how long a connection is idle"
)]

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A reply is stuck when pieces of it wait and its peer has received none for this long. Its connection takes no more
/// requests, and is closed when all its requests are stuck, or after this time once more.
const STUCK: Duration = Duration::from_secs(30);
/// Within this time a connection must show whether it uses HTTP/1.1 or HTTP/2. On HTTP/1.1 each request head must be
/// complete within this time after the connection was opened or the previous reply was sent. So it also bounds how long
/// an HTTP/1.1 connection may be idle, over the Unix socket too.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// A connection must send its first request within this time.
const FIRST_REQUEST: Duration = Duration::from_secs(60);
/// An HTTP/2 connection over TCP without requests in flight for this long is closed; clients reconnect when they need
/// to. An HTTP/1.1 connection is closed after [`HEAD_TIMEOUT`].
const MAX_IDLE: Duration = Duration::from_secs(600);

/// One open connection.
#[derive(Debug)]
pub struct Connection {
    opened: Instant,
    /// Requests whose replies are not completely sent.
    active: AtomicUsize,
    /// How many of them have an authenticated caller.
    authenticated: AtomicUsize,
    has_sent_request: AtomicBool,
    /// The replies of which pieces wait for the peer, by exchange.
    unread: Mutex<HashMap<u64, Unread>>,
    next_exchange: AtomicU64,
    /// When the peer last sent a request or received a piece, in milliseconds after `opened`.
    touched: AtomicU64,
    /// Whether the peer has sent enough to recognise the HTTP version.
    has_begun: Arc<AtomicBool>,
    /// Cancelled: the connection finishes its requests and closes.
    pub drain: CancellationToken,
    /// Cancelled: the connection closes immediately.
    pub cut: CancellationToken,
}

/// A reply of which pieces wait for the peer.
#[derive(Debug)]
struct Unread {
    pieces: usize,
    /// When the peer last received a piece, or when the first one began to wait.
    since: Instant,
}

impl Connection {
    /// A newly accepted connection. It is drained or cut when `drain` or `cut` is cancelled.
    #[must_use]
    pub fn new(
        has_begun: Arc<AtomicBool>,
        drain: &CancellationToken,
        cut: &CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            opened: Instant::now(),
            active: AtomicUsize::new(0),
            authenticated: AtomicUsize::new(0),
            has_sent_request: AtomicBool::new(false),
            unread: Mutex::default(),
            next_exchange: AtomicU64::new(0),
            touched: AtomicU64::new(0),
            has_begun,
            drain: drain.child_token(),
            cut: cut.child_token(),
        })
    }

    /// Records a new request.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> Exchange {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.has_sent_request.store(true, Ordering::Relaxed);
        self.touch();
        Exchange {
            connection: Some(self.clone()),
            id: self.next_exchange.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Counts a request of an authenticated caller as in flight, until the result is dropped.
    #[must_use]
    pub fn authenticated_request(self: &Arc<Self>) -> AuthenticatedRequest {
        self.authenticated.fetch_add(1, Ordering::Relaxed);
        AuthenticatedRequest(self.clone())
    }

    /// How expendable the connection is: whether it is idle, and how long ago the peer last sent or
    /// received something. `None` while a request of an authenticated caller is in flight.
    fn expendable(&self) -> Option<(bool, Duration)> {
        (self.authenticated.load(Ordering::Relaxed) == 0)
            .then(|| (self.idle().is_some(), self.untouched_for()))
    }

    fn touch(&self) {
        let passed = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.touched.store(passed, Ordering::Relaxed);
    }

    fn untouched_for(&self) -> Duration {
        self.opened
            .elapsed()
            .saturating_sub(Duration::from_millis(self.touched.load(Ordering::Relaxed)))
    }

    /// For how long no request has been in flight; `None` if one is.
    #[must_use]
    pub fn idle(&self) -> Option<Duration> {
        (self.active.load(Ordering::Relaxed) == 0).then(|| self.untouched_for())
    }

    fn unread(&self) -> MutexGuard<'_, HashMap<u64, Unread>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the connection if replies are stuck. One reply of many on HTTP/2 does not cut off the others at once:
    /// behind a proxy they belong to other callers.
    fn end_when_stuck(&self) {
        let (mut stuck, mut longest) = (0, Duration::ZERO);
        for reply in self.unread().values() {
            let waited = reply.since.elapsed();
            stuck += usize::from(waited > STUCK);
            longest = longest.max(waited);
        }
        if stuck == 0 {
            return;
        }
        if stuck == self.active.load(Ordering::Relaxed) || longest > 2 * STUCK {
            tracing::debug!("Closed a connection whose peer receives no replies");
            self.cut.cancel();
        } else {
            self.drain.cancel();
        }
    }

    /// Closes the connection if it exceeds one of its timeouts. With `may_idle`, as over the Unix socket, it is not
    /// closed for being idle: its peer is a process of the same user or of root.
    fn end_when_overdue(&self, may_idle: bool) {
        self.end_when_stuck();
        let is_silent =
            !self.has_begun.load(Ordering::Relaxed) && self.opened.elapsed() > HEAD_TIMEOUT;
        if is_silent {
            self.cut.cancel();
        }
        let limit = if self.has_sent_request.load(Ordering::Relaxed) {
            MAX_IDLE
        } else {
            FIRST_REQUEST
        };
        if !may_idle && self.idle().is_some_and(|idle| idle > limit) {
            if self.drain.is_cancelled() {
                self.cut.cancel();
            }
            self.drain.cancel();
        }
    }
}

/// A request and its reply on a connection, until the reply is sent or dropped.
#[derive(Debug)]
pub struct Exchange {
    connection: Option<Arc<Connection>>,
    id: u64,
}

impl Exchange {
    /// An exchange without a connection.
    #[cfg(test)]
    #[must_use]
    pub const fn unwatched() -> Self {
        Self {
            connection: None,
            id: 0,
        }
    }

    /// Records that a piece of the reply waits for the peer.
    pub fn offer(&self) {
        let Some(connection) = &self.connection else {
            return;
        };
        let mut unread = connection.unread();
        let reply = unread.entry(self.id).or_insert_with(|| Unread {
            pieces: 0,
            since: Instant::now(),
        });
        reply.pieces += 1;
    }

    /// Records that a piece was received or dropped.
    pub fn taken(&self) {
        let Some(connection) = &self.connection else {
            return;
        };
        if let Entry::Occupied(mut reply) = connection.unread().entry(self.id) {
            reply.get_mut().pieces -= 1;
            reply.get_mut().since = Instant::now();
            if reply.get().pieces == 0 {
                reply.remove();
            }
        }
        connection.touch();
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.touch();
            connection.active.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A request of an authenticated caller that is in flight.
#[derive(Debug)]
pub struct AuthenticatedRequest(Arc<Connection>);

impl Drop for AuthenticatedRequest {
    fn drop(&mut self) {
        self.0.authenticated.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The open connections of a listener, by the peer's [`network`].
#[derive(Debug)]
pub struct Registry {
    per_peer: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    connections: HashMap<u64, (Option<IpAddr>, Arc<Connection>)>,
    peers: HashMap<IpAddr, usize>,
    next_id: u64,
}

impl Registry {
    /// A registry for at most `per_peer` connections of one peer.
    #[must_use]
    pub fn new(per_peer: usize) -> Arc<Self> {
        Arc::new(Self {
            per_peer: per_peer.max(1),
            open: Mutex::default(),
        })
    }

    /// Registers a connection until the result is dropped. If the peer is at its limit, its most
    /// expendable connection is closed; `None` if all of them have requests of authenticated
    /// callers in flight.
    #[must_use]
    pub fn admit(
        self: &Arc<Self>,
        peer: Option<IpAddr>,
        connection: Arc<Connection>,
    ) -> Option<Registered> {
        let mut open = self.lock();
        if let Some(peer) = peer {
            let count = open.peers.get(&peer).copied().unwrap_or_default();
            if count >= self.per_peer && !open.make_room(Some(peer)) {
                return None;
            }
            // Not `count + 1`: the connection that made room is no longer counted.
            *open.peers.entry(peer).or_default() += 1;
        }
        let id = open.next_id;
        open.next_id += 1;
        open.connections.insert(id, (peer, connection));
        Some(Registered {
            registry: self.clone(),
            id,
        })
    }

    /// Closes connections that exceed one of their timeouts.
    pub fn end_overdue(&self) {
        for (peer, connection) in self.lock().connections.values() {
            connection.end_when_overdue(peer.is_none());
        }
    }

    /// Closes the most expendable connection; `false` if there is none.
    pub fn make_room(&self) -> bool {
        self.lock().make_room(None)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn make_room(&mut self, of: Option<IpAddr>) -> bool {
        let candidates = self.connections.iter().filter(|(_, (peer, connection))| {
            // A connection that is already being closed makes room for another new connection.
            (of.is_none() || *peer == of) && !connection.cut.is_cancelled()
        });
        let expendable =
            candidates.filter_map(|(id, (_, connection))| Some((connection.expendable()?, *id)));
        let Some((_, id)) = expendable.max() else {
            return false;
        };
        if let Some((_, connection)) = self.connections.get(&id) {
            connection.cut.cancel();
        }
        self.remove(id);
        true
    }

    fn remove(&mut self, id: u64) {
        let Some((Some(peer), _)) = self.connections.remove(&id) else {
            return;
        };
        if let Some(count) = self.peers.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&peer);
            }
        }
    }
}

/// A registered connection.
#[derive(Debug)]
pub struct Registered {
    registry: Arc<Registry>,
    id: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.lock().remove(self.id);
    }
}

/// A peer's address; in IPv6 its /64 network, because a host usually has all of it.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        IpAddr::V4(address) => IpAddr::V4(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    fn connection() -> Arc<Connection> {
        Connection::new(
            Arc::default(),
            &CancellationToken::new(),
            &CancellationToken::new(),
        )
    }

    #[test]
    fn a_peer_has_its_share_and_its_idle_connections_make_room() {
        let registry = Registry::new(2);
        let peer = address("192.0.2.1");
        let (first, second) = (connection(), connection());
        let exchanges = [first.begin(), second.begin()];
        let callers = [
            first.authenticated_request(),
            second.authenticated_request(),
        ];
        let admitted = [&first, &second].map(|one| registry.admit(peer, one.clone()).unwrap());
        assert!(
            registry.admit(peer, connection()).is_none(),
            "both have a request in flight"
        );
        let _other = registry.admit(address("192.0.2.2"), connection()).unwrap();
        drop((exchanges, callers));
        let third = registry.admit(peer, connection()).unwrap();
        assert!(
            first.cut.is_cancelled() ^ second.cut.is_cancelled(),
            "one of them made room"
        );
        let count = || registry.lock().peers.get(&peer.unwrap()).copied();
        assert_eq!(count(), Some(2), "the one that made room is not counted");
        drop((admitted, third));
        assert_eq!(count(), None, "none is open");
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_makes_room() {
        let registry = Registry::new(10);
        let (old, new) = (connection(), connection());
        tokio::time::advance(Duration::from_millis(5)).await;
        drop(new.begin());
        let _registered =
            [&old, &new].map(|connection| registry.admit(None, connection.clone()).unwrap());
        assert!(registry.make_room());
        assert!(old.cut.is_cancelled() && !new.cut.is_cancelled());
        let _busy = new.begin();
        let caller = new.authenticated_request();
        assert!(
            !registry.make_room(),
            "its request has an authenticated caller"
        );
        drop(caller);
        assert!(
            registry.make_room(),
            "a request without credentials makes room"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_that_is_not_read_ends_its_connection_whatever_else_happens_on_it() {
        let connection = connection();
        connection.has_begun.store(true, Ordering::Relaxed);
        let (stuck, other) = (connection.begin(), connection.begin());
        let pass = async |time| {
            // The peer keeps sending requests and receiving their replies.
            let short = connection.begin();
            short.offer();
            tokio::time::advance(time).await;
            other.offer();
            other.taken();
            short.taken();
            drop(short);
            connection.end_when_overdue(false);
            (
                connection.drain.is_cancelled(),
                connection.cut.is_cancelled(),
            )
        };
        stuck.offer();
        stuck.offer();
        assert_eq!(pass(Duration::from_secs(20)).await, (false, false));
        stuck.taken();
        assert_eq!(pass(Duration::from_secs(20)).await, (false, false));
        assert_eq!(pass(Duration::from_secs(20)).await, (true, false));
        assert_eq!(pass(Duration::from_secs(21)).await, (true, true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_only_reply_is_not_read_is_cut_at_once() {
        let connection = connection();
        connection.has_begun.store(true, Ordering::Relaxed);
        let (stuck, read) = (connection.begin(), connection.begin());
        read.offer();
        read.taken();
        stuck.offer();
        tokio::time::advance(STUCK - Duration::from_secs(1)).await;
        drop(read);
        connection.end_when_overdue(false);
        assert!(!connection.cut.is_cancelled(), "it still has time");
        tokio::time::advance(Duration::from_secs(2)).await;
        connection.end_when_overdue(false);
        assert!(connection.cut.is_cancelled());
    }

    #[test]
    fn hosts_of_one_network_are_one_peer() {
        let same = ["2001:db8::1", "2001:db8::ffff:1"].map(|text| network(text.parse().unwrap()));
        assert_eq!(same[0], same[1]);
        assert_ne!(same[0], network("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(
            network("::ffff:192.0.2.1".parse().unwrap()),
            network("192.0.2.1".parse().unwrap())
        );
    }
}
