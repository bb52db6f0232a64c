//! A proxy between the store and PostgreSQL that misbehaves on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The behaviour of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Forwards everything.
    Honest,
    /// Once: closes the connection instead of forwarding a commit.
    CutBeforeCommit,
    /// Once: forwards a commit, and closes the connection instead of forwarding the response. The transaction has then
    /// ended on the server.
    CutAfterCommit,
    /// Forwards everything, and translates reports of deadlocks into German.
    German,
    /// Forwards nothing.
    Stalled,
    /// Closes every connection at once.
    Dead,
}

/// A running proxy.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    mode: watch::Sender<Mode>,
    connections: AtomicUsize,
    parsed: AtomicUsize,
    translated: AtomicUsize,
}

impl Shared {
    fn is(&self, mode: Mode) -> bool {
        *self.mode.borrow() == mode
    }

    /// Whether the proxy has this mode. If so, it forwards everything from now on, so that the fault happens once.
    fn once(&self, mode: Mode) -> bool {
        self.mode.send_if_modified(|now| {
            let is_now = *now == mode;
            if is_now {
                *now = Mode::Honest;
            }
            is_now
        })
    }

    /// Waits until the proxy has this mode or, with `has` false, another one.
    async fn until(&self, mode: Mode, has: bool) {
        let mut modes = self.mode.subscribe();
        let changed = modes.wait_for(|now| (*now == mode) == has).await;
        changed.expect("the sender lives as long as `self`");
    }
}

impl Proxy {
    /// A proxy to the server of this URL, which names a host and a port.
    pub async fn start(url: &str) -> Self {
        let server = authority(url);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let shared = Arc::new(Shared {
            mode: watch::Sender::new(Mode::Honest),
            connections: AtomicUsize::new(0),
            parsed: AtomicUsize::new(0),
            translated: AtomicUsize::new(0),
        });
        let accepted = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepted.connections.fetch_add(1, Ordering::SeqCst);
                if let (false, Ok(server)) =
                    (accepted.is(Mode::Dead), TcpStream::connect(&server).await)
                {
                    tokio::spawn(serve(client, server, Arc::clone(&accepted)));
                }
            }
        });
        Self { port, shared }
    }

    /// The URL through the proxy.
    pub fn url(&self, url: &str) -> String {
        url.replacen(&authority(url), &format!("127.0.0.1:{}", self.port), 1)
    }

    pub fn set(&self, mode: Mode) {
        self.shared.mode.send_replace(mode);
    }

    /// The behaviour now. After a fault that happens once it is [`Mode::Honest`].
    pub fn mode(&self) -> Mode {
        *self.shared.mode.borrow()
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Number of `Parse` messages of the clients so far. Simple queries, such as `COMMIT`, have none.
    pub fn parsed(&self) -> usize {
        self.shared.parsed.load(Ordering::SeqCst)
    }

    /// Number of reports of deadlocks that were translated so far.
    pub fn translated(&self) -> usize {
        self.shared.translated.load(Ordering::SeqCst)
    }
}

/// `host:port` of a URL.
pub fn authority(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority
        .rsplit_once('@')
        .map_or(authority, |(_, hosts)| hosts)
        .to_owned()
}

async fn serve(client: TcpStream, server: TcpStream, shared: Arc<Shared>) {
    // Messages are forwarded without delay.
    for stream in [&client, &server] {
        stream.set_nodelay(true).expect("an option of TCP");
    }
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    // What the server has sent since the commit that gets no response.
    let mut swallowed: Option<Vec<u8>> = None;
    let mut messages = Messages::default();
    loop {
        let (mut request, mut response) = (vec![0; 65_536], vec![0; 65_536]);
        tokio::select! {
            read = from_client.read(&mut request) => {
                let Ok(length @ 1..) = read else { return };
                let request = &request[..length];
                shared.parsed.fetch_add(messages.parses(request), Ordering::SeqCst);
                if contains(request, COMMIT) {
                    if shared.once(Mode::CutBeforeCommit) {
                        return;
                    }
                    swallowed = shared.once(Mode::CutAfterCommit).then(Vec::new);
                }
                if !pass(request, &mut to_server, &shared).await {
                    return;
                }
            }
            read = from_server.read(&mut response) => {
                let Ok(length @ 1..) = read else { return };
                if shared.is(Mode::German) && translate(&mut response[..length]) {
                    shared.translated.fetch_add(1, Ordering::SeqCst);
                }
                if let Some(swallowed) = &mut swallowed {
                    swallowed.extend_from_slice(&response[..length]);
                    if ENDED.iter().any(|tag| contains(swallowed, tag)) {
                        return;
                    }
                } else if !pass(&response[..length], &mut to_client, &shared).await {
                    return;
                }
            }
            () = shared.until(Mode::Dead, true) => return,
        }
        stalled(&shared, &mut from_client).await;
    }
}

/// The messages of a client.
#[derive(Default)]
struct Messages {
    has_begun: bool,
    /// The beginning of a message that is not complete yet.
    pending: Vec<u8>,
}

impl Messages {
    /// Adds received bytes. Returns the number of `Parse` messages that they complete.
    fn parses(&mut self, bytes: &[u8]) -> usize {
        /// The code of an `SSLRequest`, which a client may send before its first message.
        const TLS: [u8; 4] = 80_877_103_u32.to_be_bytes();
        self.pending.extend_from_slice(bytes);
        let mut parses = 0;
        loop {
            // The first message begins with its length, the others with their kind.
            let kind = usize::from(self.has_begun);
            let Some(length) = self.pending.get(kind..kind + 4) else {
                return parses;
            };
            let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]);
            let end = kind + length as usize;
            if self.pending.len() < end {
                return parses;
            }
            let message: Vec<u8> = self.pending.drain(..end).collect();
            parses += usize::from(self.has_begun && message[0] == b'P');
            self.has_begun |= !message.ends_with(&TLS);
        }
    }
}

/// The statements that end the transaction of a write. A read ends with `COMMIT` alone.
const COMMIT: &[u8] = b"statement_timeout = 0; COMMIT\0";
/// How the server reports that a transaction has ended.
const ENDED: [&[u8]; 2] = [b"COMMIT\0", b"ROLLBACK\0"];
const ENGLISH: &[u8] = b"deadlock detected";
const GERMAN: &[u8] = b"Deadlock entdeckt";

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|found| found == wanted)
}

/// Translates a report of a deadlock. Returns whether there was one.
fn translate(bytes: &mut [u8]) -> bool {
    let found = bytes
        .windows(ENGLISH.len())
        .position(|found| found == ENGLISH);
    if let Some(at) = found {
        bytes[at..at + ENGLISH.len()].copy_from_slice(GERMAN);
    }
    found.is_some()
}

async fn pass(bytes: &[u8], to: &mut OwnedWriteHalf, shared: &Shared) -> bool {
    shared.is(Mode::Stalled) || !shared.is(Mode::Dead) && to.write_all(bytes).await.is_ok()
}

/// Waits while the proxy is stalled and the client is connected.
async fn stalled(shared: &Shared, client: &mut OwnedReadHalf) {
    while shared.is(Mode::Stalled) {
        let mut rest = vec![0; 1024];
        tokio::select! {
            read = client.read(&mut rest) => if !matches!(read, Ok(1..)) { return },
            () = shared.until(Mode::Stalled, false) => return,
        }
    }
}
