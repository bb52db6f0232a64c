//! A server that stands between the store and PostgreSQL and misbehaves on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// What the proxy does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// Passes everything on.
    Honest,
    /// Once: cuts the connection instead of passing a commit on.
    CutBeforeCommit,
    /// Once: passes a commit on and cuts the connection instead of passing the answer on.
    CutAfterCommit,
    /// Passes everything on, and makes the server report deadlocks in German.
    German,
    /// Passes nothing on.
    Stalled,
    /// Cuts every connection at once.
    Dead,
}

/// A running proxy.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    mode: AtomicU8,
    connections: AtomicUsize,
}

impl Shared {
    fn is(&self, mode: Mode) -> bool {
        self.mode.load(Ordering::SeqCst) == mode as u8
    }

    /// Whether this is the moment the mode waits for; it happens once.
    fn once(&self, mode: Mode) -> bool {
        self.mode
            .compare_exchange(
                mode as u8,
                Mode::Honest as u8,
                Ordering::SeqCst,
                Ordering::SeqCst,
            )
            .is_ok()
    }
}

impl Proxy {
    /// A proxy to the server of this URL, which names a host and a port.
    pub async fn start(url: &str) -> Self {
        let server = authority(url);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let shared = Arc::new(Shared {
            mode: AtomicU8::new(Mode::Honest as u8),
            connections: AtomicUsize::new(0),
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
        self.shared.mode.store(mode as u8, Ordering::SeqCst);
    }

    /// Connections that were made so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
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
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let mut swallow = false;
    loop {
        let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
        tokio::select! {
            read = from_client.read(&mut asked) => {
                let Ok(length @ 1..) = read else { return };
                let asked = &asked[..length];
                if contains(asked, COMMIT) {
                    if shared.once(Mode::CutBeforeCommit) {
                        return;
                    }
                    swallow = shared.once(Mode::CutAfterCommit);
                }
                if !pass(asked, &mut to_server, &shared).await {
                    return;
                }
            }
            read = from_server.read(&mut answered) => {
                let Ok(length @ 1..) = read else { return };
                if shared.is(Mode::German) {
                    translate(&mut answered[..length]);
                }
                if swallow || !pass(&answered[..length], &mut to_client, &shared).await {
                    return;
                }
            }
            () = dead(&shared) => return,
        }
        stalled(&shared, &mut from_client).await;
    }
}

/// How writes end; reads end without the first word.
const COMMIT: &[u8] = b"statement_timeout = 0; COMMIT\0";
const ENGLISH: &[u8] = b"deadlock detected";
const GERMAN: &[u8] = b"Deadlock entdeckt";

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|found| found == wanted)
}

fn translate(bytes: &mut [u8]) {
    if let Some(at) = bytes
        .windows(ENGLISH.len())
        .position(|found| found == ENGLISH)
    {
        bytes[at..at + ENGLISH.len()].copy_from_slice(GERMAN);
    }
}

async fn pass(bytes: &[u8], to: &mut OwnedWriteHalf, shared: &Shared) -> bool {
    shared.is(Mode::Stalled) || !shared.is(Mode::Dead) && to.write_all(bytes).await.is_ok()
}

/// Ends when connections are to be cut.
async fn dead(shared: &Shared) {
    while !shared.is(Mode::Dead) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Waits while the proxy is stalled and the client is there.
async fn stalled(shared: &Shared, client: &mut OwnedReadHalf) {
    while shared.is(Mode::Stalled) {
        let mut rest = vec![0; 1024];
        tokio::select! {
            read = client.read(&mut rest) => if !matches!(read, Ok(1..)) { return },
            () = tokio::time::sleep(std::time::Duration::from_millis(5)) => {}
        }
    }
}
