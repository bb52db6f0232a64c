//! Followers over each transport. They record what they request and receive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use context_proto::error_from_status;
use context_proto::v1 as pb;
use context_proto::v1::change_service_client::ChangeServiceClient;
use context_test_support::http::{self, Events, Reply, Request};
use context_test_support::{Random, grpc};
use serde_json::Value;
use tokio::sync::watch;
use tonic::Code;

use super::convert::{change_of_json, event_of_grpc, event_of_sse, filter_of_grpc};
use super::endpoint::{Endpoint, Endpoints, Target, Written, with_key};
use super::{Change, Event, Filter, Log, Session, Start};

/// Lets a round cut a snapshot of a follower.
#[derive(Debug, Default)]
pub(super) struct Cut(AtomicBool);

impl Cut {
    /// From now on the follower begins again with a snapshot, until one is cut in the middle.
    pub(super) fn request(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether no snapshot remains to be cut.
    pub(super) fn is_done(&self) -> bool {
        !self.0.load(Ordering::SeqCst)
    }

    fn finish(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// How long a follower waits for a frame before it checks whether it should end.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// How long a follower waits before it connects again.
const PAUSE: Duration = Duration::from_millis(10);
/// The filter [`Filter::Numbered`] in a URL.
pub const NUMBERED: &str =
    "%5B%7B%22key%22%3A%22n%22%2C%22operator%22%3A%22gte%22%2C%22value%22%3A5%7D%5D";

/// How changes are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Watch over gRPC.
    Grpc,
    /// Server-Sent Events.
    Sse,
    /// Lists that wait.
    Lists,
}

/// A follower. Its seed decides how it reads.
#[derive(Debug)]
pub struct Follower {
    transport: Transport,
    filter: Filter,
    start: Start,
    bodies: bool,
    is_slow: bool,
    /// The average number of frames after which it drops its connection.
    cut_every: usize,
    random: Random,
    key: Option<String>,
    endpoints: Arc<Endpoints>,
    target: watch::Receiver<Option<Target>>,
    cut: Option<Arc<Cut>>,
    cursor: Option<String>,
    reached: i64,
    /// The revision and the id of the last change of the session.
    last: Option<(i64, String)>,
}

/// Why a session ended.
enum SessionEnd {
    /// The follower has reached its target.
    TargetReached,
    /// The connection is lost, the follower dropped it, or the service ended the stream.
    Disconnected,
}

impl Follower {
    pub(super) fn new(
        mut random: Random,
        filter: Filter,
        key: Option<String>,
        endpoints: Arc<Endpoints>,
        target: watch::Receiver<Option<Target>>,
        cut: Option<Arc<Cut>>,
    ) -> Self {
        let mut transport = *random.pick(&[Transport::Grpc, Transport::Sse, Transport::Lists]);
        // Lists have no snapshot.
        if cut.is_some() && transport == Transport::Lists {
            transport = *random.pick(&[Transport::Grpc, Transport::Sse]);
        }
        let start = if transport == Transport::Lists {
            *random.pick(&[Start::Oldest, Start::Oldest, Start::Now])
        } else {
            *random.pick(&[Start::Oldest, Start::Snapshot, Start::Snapshot, Start::Now])
        };
        // A gRPC request with metadata conditions takes many lines to build, and would test nothing more than SSE does.
        let transport = match transport {
            Transport::Grpc if filter == Filter::Numbered => Transport::Sse,
            other => other,
        };
        Self {
            transport,
            filter,
            start,
            bodies: random.chance(50),
            is_slow: random.chance(25),
            cut_every: *random.pick(&[5, 20, 80, 1_000_000]),
            random,
            key,
            endpoints,
            target,
            cut,
            cursor: None,
            reached: 0,
            last: None,
        }
    }

    /// Follows until the target is reached.
    pub(super) async fn run(mut self) -> Log {
        let mut log = Log {
            name: format!("{:?}", (self.transport, self.start)),
            filter: self.filter,
            bodies: self.bodies,
            is_slow: self.is_slow,
            lists: self.transport == Transport::Lists,
            sessions: Vec::new(),
        };
        loop {
            let endpoint = self.endpoints.any(&mut self.random).await;
            let start = if self.cursor.is_some() {
                Start::Cursor
            } else {
                self.start
            };
            let mut session = Session {
                epoch: endpoint.epoch,
                until: endpoint.epoch,
                start,
                events: Vec::new(),
            };
            self.last = None;
            let end = match self.transport {
                Transport::Grpc => self.grpc(endpoint, &mut session).await,
                Transport::Sse => self.sse(endpoint, &mut session).await,
                Transport::Lists => self.lists(endpoint, &mut session).await,
            };
            session.until = self.endpoints.epoch_at(endpoint.address);
            if self.must_begin_again(&session) {
                self.begin_again(Start::Snapshot);
            }
            if let Some(Event::Resync(reason)) = session.events.last()
                && reason != "SLOW_CONSUMER"
            {
                self.begin_again(match self.start {
                    Start::Oldest if log.lists => Start::Now,
                    Start::Oldest => Start::Snapshot,
                    start => start,
                });
            }
            log.sessions.push(session);
            match end {
                SessionEnd::TargetReached => return log,
                SessionEnd::Disconnected => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn begin_again(&mut self, start: Start) {
        self.start = start;
        self.cursor = None;
        self.reached = 0;
    }

    /// Whether a snapshot is to be cut, and this session has no snapshot that can still be cut.
    fn must_begin_again(&self, session: &Session) -> bool {
        let is_requested = self.cut.as_ref().is_some_and(|cut| !cut.is_done());
        let is_over = |event: &Event| matches!(event, Event::SnapshotEnd(_));
        is_requested && (session.start != Start::Snapshot || session.events.iter().any(is_over))
    }

    /// Whether the follower has reached its target.
    fn is_done(&self, endpoint: Endpoint) -> bool {
        let target = self.target.borrow();
        let Some(target) = &*target else { return false };
        // If another database took over during this session, revisions of the old one do not count.
        let Written { revision, id } = target.of(self.filter);
        let is_last = |(last, of): &(i64, String)| (last, of) == (revision, id);
        let is_current = target.epoch == endpoint.epoch || self.last.as_ref().is_some_and(is_last);
        is_current && self.reached >= *revision
    }

    /// Updates the revision that the follower has reached.
    fn advance(&mut self, event: &Event, start: Start) {
        match event {
            Event::Opened(revision) if start != Start::Snapshot => self.reached = *revision,
            Event::SnapshotEnd(revision) | Event::Bookmark(revision) => self.reached = *revision,
            Event::Change(Change { revision, id, .. }) => {
                self.reached = *revision;
                self.last = Some((*revision, id.clone()));
            }
            _ => {}
        }
    }

    /// Records a frame. Returns why the session ends, if it does.
    async fn record(
        &mut self,
        endpoint: Endpoint,
        session: &mut Session,
        event: Event,
        cursor: Option<String>,
    ) -> Option<SessionEnd> {
        self.advance(&event, session.start);
        let is_last = matches!(event, Event::Resync(_) | Event::End(_));
        let is_entry = matches!(event, Event::Entry { .. });
        session.events.push(event);
        if let Some(cursor) = cursor.filter(|cursor| !cursor.is_empty()) {
            self.cursor = Some(cursor);
        }
        if let Some(cut) = self.cut.as_ref().filter(|cut| !cut.is_done())
            && is_entry
            && self.random.one_in(3)
        {
            cut.finish();
            return Some(SessionEnd::Disconnected);
        }
        if self.is_done(endpoint) {
            return Some(SessionEnd::TargetReached);
        }
        let hurries = self.target.borrow().is_some();
        let cuts = !hurries && self.random.one_in(self.cut_every);
        if is_last || cuts || self.must_begin_again(session) {
            return Some(SessionEnd::Disconnected);
        }
        if self.is_slow && !hurries {
            let pause = self.random.below(15) as u64;
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        None
    }

    /// Why a session ends in which no frame comes, if it does.
    fn end_without_frame(&self, endpoint: Endpoint, session: &Session) -> Option<SessionEnd> {
        if self.is_done(endpoint) {
            return Some(SessionEnd::TargetReached);
        }
        self.must_begin_again(session)
            .then_some(SessionEnd::Disconnected)
    }

    fn query(&self) -> String {
        let filter = match self.filter {
            Filter::None | Filter::OfKey => String::new(),
            Filter::Thread(thread) => format!("thread_id={thread}&"),
            Filter::OfUser => "source=user&".to_owned(),
            Filter::Tagged => "tag=keep&".to_owned(),
            Filter::Numbered => format!("metadata_filters={NUMBERED}&"),
            Filter::Artifacts => "entity=artifact&".to_owned(),
        };
        let start = match (&self.cursor, self.start) {
            (Some(cursor), _) => format!("cursor={cursor}&"),
            (None, Start::Now) => "cursor=now&".to_owned(),
            (None, Start::Snapshot) => "snapshot=true&".to_owned(),
            (None, Start::Oldest | Start::Cursor) => String::new(),
        };
        format!("{filter}{start}include_body={}", self.bodies)
    }

    async fn sse(&mut self, endpoint: Endpoint, session: &mut Session) -> SessionEnd {
        let request = Request::get(endpoint.address, &format!("/v1/watch?{}", self.query()));
        let mut events: Events = match with_key(request, self.key.as_deref()).try_events().await {
            Ok(Ok(events)) => events,
            Ok(Err(reply)) => return refused(&reply, session),
            Err(_) => return SessionEnd::Disconnected,
        };
        loop {
            match tokio::time::timeout(CHECK_INTERVAL, events.next()).await {
                Ok(Some(http::Event { name, id, data })) => {
                    let event = event_of_sse(&name, &data);
                    if let Some(end) = self.record(endpoint, session, event, id).await {
                        return end;
                    }
                }
                Ok(None) => return SessionEnd::Disconnected,
                Err(_) => {
                    if let Some(end) = self.end_without_frame(endpoint, session) {
                        return end;
                    }
                }
            }
        }
    }

    async fn grpc(&mut self, endpoint: Endpoint, session: &mut Session) -> SessionEnd {
        let has_cursor = self.cursor.is_some();
        let cursor = match self.start {
            Start::Now if !has_cursor => Some("now".to_owned()),
            _ => self.cursor.clone(),
        };
        let request = pb::WatchRequest {
            cursor,
            snapshot: (!has_cursor && self.start == Start::Snapshot).then_some(true),
            filter: Some(filter_of_grpc(self.filter)),
            entity: (self.filter == Filter::Artifacts).then(|| "artifact".to_owned()),
            include_body: Some(self.bodies),
            ..pb::WatchRequest::default()
        };
        let mut client = ChangeServiceClient::with_interceptor(
            grpc::at(endpoint.address),
            grpc::Key::new(self.key.as_deref()),
        );
        let mut stream = match client.watch(request).await {
            Ok(stream) => stream.into_inner(),
            Err(status) => return failed(&status, session),
        };
        loop {
            match tokio::time::timeout(CHECK_INTERVAL, stream.message()).await {
                Ok(Ok(Some(pb::WatchResponse { cursor, frame }))) => {
                    let event = event_of_grpc(frame.expect("a frame"));
                    if let Some(end) = self.record(endpoint, session, event, Some(cursor)).await {
                        return end;
                    }
                }
                Ok(Ok(None)) => return SessionEnd::Disconnected,
                Ok(Err(status)) => return failed(&status, session),
                Err(_) => {
                    if let Some(end) = self.end_without_frame(endpoint, session) {
                        return end;
                    }
                }
            }
        }
    }

    async fn lists(&mut self, endpoint: Endpoint, session: &mut Session) -> SessionEnd {
        loop {
            let limit = *self.random.pick(&[1, 3, 10, 100, 1000]);
            let wait = *self.random.pick(&[0, 50, 300]);
            let path = format!("/v1/changes?{}&limit={limit}&wait_ms={wait}", self.query());
            let request = Request::get(endpoint.address, &path);
            let request = with_key(request, self.key.as_deref()).try_send();
            let cut_after_ms = if self.random.one_in(self.cut_every) {
                10
            } else {
                60_000
            };
            let Ok(Ok(reply)) =
                tokio::time::timeout(Duration::from_millis(cut_after_ms), request).await
            else {
                return SessionEnd::Disconnected;
            };
            if reply.status != 200 {
                return refused(&reply, session);
            }
            let page = reply.json();
            for change in page["changes"].as_array().expect("a list") {
                let event = Event::Change(change_of_json(change));
                self.advance(&event, session.start);
                session.events.push(event);
            }
            let revision = page["revision"].as_i64().expect("a revision");
            let has_more = page["has_more"] == true;
            let oldest = page["compacted_before"].as_i64().expect("a revision");
            session.events.push(Event::Page {
                revision,
                has_more,
                oldest,
            });
            self.cursor = page["next_cursor"].as_str().map(str::to_owned);
            if !has_more {
                self.reached = revision;
            }
            if self.is_done(endpoint) {
                return SessionEnd::TargetReached;
            }
            if self.is_slow && self.target.borrow().is_none() {
                let pause = self.random.below(60) as u64;
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        }
    }
}

/// Whether a reason concerns the cursor. Other reasons (the service stops, or is busy) are temporary.
fn is_about_the_cursor(reason: &str) -> bool {
    ["CURSOR_INVALID", "CURSOR_COMPACTED", "RESYNC_REQUIRED"].contains(&reason)
}

fn refused(reply: &Reply, session: &mut Session) -> SessionEnd {
    assert_ne!(reply.status, 500, "{}", reply.body);
    let problem: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    let reason = problem["reason"].as_str().unwrap_or_default();
    if is_about_the_cursor(reason) {
        session.events.push(Event::Resync(reason.to_owned()));
    }
    SessionEnd::Disconnected
}

fn failed(status: &tonic::Status, session: &mut Session) -> SessionEnd {
    // A broken connection can have this code too, without the details that the service sends.
    assert!(
        status.code() != Code::Internal || status.details().is_empty(),
        "{status:?}"
    );
    let reason = error_from_status(status).reason.as_str().to_owned();
    if is_about_the_cursor(&reason) {
        session.events.push(Event::Resync(reason));
    }
    SessionEnd::Disconnected
}
