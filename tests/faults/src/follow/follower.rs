//! Followers over each transport. They record what they ask and receive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use context_proto::error_from_status;
use context_proto::v1 as pb;
use context_proto::v1::change_service_client::ChangeServiceClient;
use context_proto::v1::watch_response::Frame;
use context_test_support::http::{self, Events, Reply, Request};
use context_test_support::{Random, grpc};
use serde_json::Value;
use tokio::sync::watch;

use super::place::{Made, Place, Places, Target, with_key};
use super::{Body, Change, Event, Filter, Log, Session, Start};

/// Lets a round cut a snapshot of a follower.
#[derive(Debug, Default)]
pub(super) struct Cut(AtomicBool);

impl Cut {
    /// The follower begins again with a snapshot, until one is cut in the middle.
    pub(super) fn ask(&self) {
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

/// How long a follower waits for a frame before it looks whether it should end.
const LOOK: Duration = Duration::from_millis(20);
/// How long it waits before it connects again.
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

/// A follower, as its seed made it.
#[derive(Debug)]
pub struct Follower {
    transport: Transport,
    filter: Filter,
    start: Start,
    bodies: bool,
    is_slow: bool,
    /// It drops its connection about once in so many frames.
    cut_every: usize,
    random: Random,
    key: Option<String>,
    places: Arc<Places>,
    target: watch::Receiver<Option<Target>>,
    cut: Option<Arc<Cut>>,
    cursor: Option<String>,
    reached: i64,
    /// The revision and the id of the last change of the session.
    last: Option<(i64, String)>,
}

/// Why a session is over.
enum Over {
    /// The follower is where it should be.
    Done,
    /// The connection is gone, or the service ended the stream.
    Gone,
}

impl Follower {
    pub(super) fn new(
        mut random: Random,
        filter: Filter,
        key: Option<String>,
        places: Arc<Places>,
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
        // The request of gRPC with conditions is long, and nothing else depends on the transport of a filter.
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
            places,
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
            let place = self.places.any(&mut self.random).await;
            let start = if self.cursor.is_some() {
                Start::Cursor
            } else {
                self.start
            };
            let mut session = Session {
                epoch: place.epoch,
                until: place.epoch,
                start,
                events: Vec::new(),
            };
            self.last = None;
            let over = match self.transport {
                Transport::Grpc => self.grpc(place, &mut session).await,
                Transport::Sse => self.sse(place, &mut session).await,
                Transport::Lists => self.lists(place, &mut session).await,
            };
            session.until = self.places.epoch_at(place.address);
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
            match over {
                Over::Done => return log,
                Over::Gone => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn begin_again(&mut self, start: Start) {
        self.start = start;
        self.cursor = None;
        self.reached = 0;
    }

    /// Whether a snapshot is to be cut, and this session has none that can be.
    fn must_begin_again(&self, session: &Session) -> bool {
        let is_asked = self.cut.as_ref().is_some_and(|cut| !cut.is_done());
        let is_over = |event: &Event| matches!(event, Event::SnapshotEnd(_));
        is_asked && (session.start != Start::Snapshot || session.events.iter().any(is_over))
    }

    /// Whether the follower has come far enough.
    fn is_done(&self, place: Place) -> bool {
        let target = self.target.borrow();
        let Some(target) = &*target else { return false };
        // Under a session that began earlier another database took over. Revisions of the old one do not count.
        let Made { revision, id } = target.of(self.filter);
        let is_last = |(last, of): &(i64, String)| (last, of) == (revision, id);
        let is_there = target.epoch == place.epoch || self.last.as_ref().is_some_and(is_last);
        is_there && self.reached >= *revision
    }

    /// Notes how far the follower has come with a frame.
    fn note(&mut self, event: &Event, start: Start) {
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

    /// Records a frame. Returns how the session is over, if it is.
    async fn take(
        &mut self,
        place: Place,
        session: &mut Session,
        event: Event,
        cursor: Option<String>,
    ) -> Option<Over> {
        self.note(&event, session.start);
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
            return Some(Over::Gone);
        }
        if self.is_done(place) {
            return Some(Over::Done);
        }
        let hurries = self.target.borrow().is_some();
        let cuts = !hurries && self.random.one_in(self.cut_every);
        if is_last || cuts || self.must_begin_again(session) {
            return Some(Over::Gone);
        }
        if self.is_slow && !hurries {
            let pause = self.random.below(15) as u64;
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        None
    }

    /// How a session is over in which no frame comes, if it is.
    fn look(&self, place: Place, session: &Session) -> Option<Over> {
        if self.is_done(place) {
            return Some(Over::Done);
        }
        self.must_begin_again(session).then_some(Over::Gone)
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

    async fn sse(&mut self, place: Place, session: &mut Session) -> Over {
        let request = Request::get(place.address, &format!("/v1/watch?{}", self.query()));
        let mut events: Events = match with_key(request, self.key.as_deref()).try_events().await {
            Ok(Ok(events)) => events,
            Ok(Err(reply)) => return refused(&reply, session),
            Err(_) => return Over::Gone,
        };
        loop {
            match tokio::time::timeout(LOOK, events.next()).await {
                Ok(Some(http::Event { name, id, data })) => {
                    let event = of_sse(&name, &data);
                    if let Some(over) = self.take(place, session, event, id).await {
                        return over;
                    }
                }
                Ok(None) => return Over::Gone,
                Err(_) => {
                    if let Some(over) = self.look(place, session) {
                        return over;
                    }
                }
            }
        }
    }

    async fn grpc(&mut self, place: Place, session: &mut Session) -> Over {
        let has_cursor = self.cursor.is_some();
        let cursor = match self.start {
            Start::Now if !has_cursor => Some("now".to_owned()),
            _ => self.cursor.clone(),
        };
        let request = pb::WatchRequest {
            cursor,
            snapshot: (!has_cursor && self.start == Start::Snapshot).then_some(true),
            filter: Some(of_grpc_filter(self.filter)),
            entity: (self.filter == Filter::Artifacts).then(|| "artifact".to_owned()),
            include_body: Some(self.bodies),
            ..pb::WatchRequest::default()
        };
        let mut client = ChangeServiceClient::with_interceptor(
            grpc::at(place.address),
            grpc::Key::new(self.key.as_deref()),
        );
        let mut stream = match client.watch(request).await {
            Ok(stream) => stream.into_inner(),
            Err(status) => return failed(&status, session),
        };
        loop {
            match tokio::time::timeout(LOOK, stream.message()).await {
                Ok(Ok(Some(pb::WatchResponse { cursor, frame }))) => {
                    let event = of_grpc(frame.expect("a frame"));
                    if let Some(over) = self.take(place, session, event, Some(cursor)).await {
                        return over;
                    }
                }
                Ok(Ok(None)) => return Over::Gone,
                Ok(Err(status)) => return failed(&status, session),
                Err(_) => {
                    if let Some(over) = self.look(place, session) {
                        return over;
                    }
                }
            }
        }
    }

    async fn lists(&mut self, place: Place, session: &mut Session) -> Over {
        loop {
            let limit = *self.random.pick(&[1, 3, 10, 100, 1000]);
            let wait = *self.random.pick(&[0, 50, 300]);
            let path = format!("/v1/changes?{}&limit={limit}&wait_ms={wait}", self.query());
            let request = Request::get(place.address, &path);
            let request = with_key(request, self.key.as_deref()).try_send();
            let cut_after_ms = if self.random.one_in(self.cut_every) {
                10
            } else {
                60_000
            };
            let Ok(Ok(reply)) =
                tokio::time::timeout(Duration::from_millis(cut_after_ms), request).await
            else {
                return Over::Gone;
            };
            if reply.status != 200 {
                return refused(&reply, session);
            }
            let page = reply.json();
            for change in page["changes"].as_array().expect("a list") {
                let event = Event::Change(of_json(change));
                self.note(&event, session.start);
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
            if self.is_done(place) {
                return Over::Done;
            }
            if self.is_slow && self.target.borrow().is_none() {
                let pause = self.random.below(60) as u64;
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        }
    }
}

/// Whether a reason is about the cursor. Others (the service stops, or is busy) pass.
fn is_about_the_cursor(reason: &str) -> bool {
    ["CURSOR_INVALID", "CURSOR_COMPACTED", "RESYNC_REQUIRED"].contains(&reason)
}

fn refused(reply: &Reply, session: &mut Session) -> Over {
    assert_ne!(reply.status, 500, "{}", reply.body);
    let problem: Value = serde_json::from_str(&reply.body).unwrap_or_default();
    let reason = problem["reason"].as_str().unwrap_or_default();
    if is_about_the_cursor(reason) {
        session.events.push(Event::Resync(reason.to_owned()));
    }
    Over::Gone
}

fn failed(status: &tonic::Status, session: &mut Session) -> Over {
    let reason = error_from_status(status).reason.as_str().to_owned();
    if is_about_the_cursor(&reason) {
        session.events.push(Event::Resync(reason));
    }
    Over::Gone
}

fn of_grpc_filter(filter: Filter) -> pb::Filter {
    let mut asked = pb::Filter::default();
    match filter {
        Filter::Thread(thread) => asked.thread_id = Some(thread.to_owned()),
        Filter::OfUser => asked.source = Some("user".to_owned()),
        Filter::Tagged => {
            let values = vec!["keep".to_owned()];
            asked.tags = Some(pb::StringList { values });
        }
        Filter::None | Filter::OfKey | Filter::Artifacts => {}
        Filter::Numbered => unreachable!("it is asked for over REST"),
    }
    asked
}

fn of_grpc(frame: Frame) -> Event {
    match frame {
        Frame::Opened(opened) => Event::Opened(opened.revision),
        Frame::Entry(entry) => Event::Entry {
            body: body_of_grpc(entry.context, entry.artifact),
            entity: entry.entity,
            id: entry.id,
        },
        Frame::SnapshotEnd(end) => Event::SnapshotEnd(end.revision),
        Frame::Change(change) | Frame::Left(change) => Event::Change(Change {
            revision: change.revision,
            operation: change.operation,
            entity: change.entity,
            id: change.id,
            thread_id: change.thread_id,
            version: change.version,
            commit_end: change.commit_end,
            body: body_of_grpc(change.context, change.artifact),
        }),
        Frame::Bookmark(bookmark) => Event::Bookmark(bookmark.revision),
        Frame::Resync(resync) => Event::Resync(resync.reason),
        Frame::End(end) => Event::End(end.reason),
    }
}

fn body_of_grpc(context: Option<pb::Context>, artifact: Option<pb::Artifact>) -> Option<Body> {
    let of_entry = context.map(|context| Body {
        version: context.version,
        text: context.text_content,
        tags: context.tags,
    });
    of_entry.or_else(|| {
        artifact.map(|artifact| Body {
            version: artifact.version,
            text: artifact_text(artifact.path.as_deref(), &artifact.content),
            tags: Vec::new(),
        })
    })
}

fn artifact_text(path: Option<&str>, content: &str) -> String {
    format!("{}: {content}", path.unwrap_or_default())
}

fn of_sse(name: &str, data: &Value) -> Event {
    let revision = || data["revision"].as_i64().expect("a revision");
    let reason = || text(&data["reason"]);
    match name {
        "opened" => Event::Opened(revision()),
        "entry" => Event::Entry {
            entity: text(&data["entity"]),
            id: text(&data["id"]),
            body: body_of_json(data),
        },
        "snapshot_end" => Event::SnapshotEnd(revision()),
        "change" | "left" => Event::Change(of_json(data)),
        "bookmark" => Event::Bookmark(revision()),
        "resync" => Event::Resync(reason()),
        "end" => Event::End(reason()),
        other => panic!("a frame {other}"),
    }
}

fn of_json(change: &Value) -> Change {
    Change {
        revision: change["revision"].as_i64().expect("a revision"),
        operation: text(&change["operation"]),
        entity: text(&change["entity"]),
        id: text(&change["id"]),
        thread_id: change["thread_id"].as_str().map(str::to_owned),
        version: change["version"].as_i64(),
        commit_end: change["commit_end"] == true,
        body: body_of_json(change),
    }
}

fn body_of_json(data: &Value) -> Option<Body> {
    if data["context"].is_object() {
        Some(entry_of_json(&data["context"]))
    } else {
        data["artifact"]
            .is_object()
            .then(|| artifact_of_json(&data["artifact"]))
    }
}

/// The content of an entry in JSON.
pub(super) fn entry_of_json(entry: &Value) -> Body {
    let tags = entry["tags"].as_array().into_iter().flatten();
    Body {
        version: entry["version"].as_i64().expect("a version"),
        text: text(&entry["text_content"]),
        tags: tags.map(text).collect(),
    }
}

/// The content of an artifact in JSON.
pub(super) fn artifact_of_json(artifact: &Value) -> Body {
    Body {
        version: artifact["version"].as_i64().expect("a version"),
        text: artifact_text(artifact["path"].as_str(), &text(&artifact["content"])),
        tags: Vec::new(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
