//! Notifies clients when a resource that they subscribed to has changed, by following the owner's changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use context_model::{Error, Reason};
use context_proto::v1 as pb;
use pb::watch_response::Frame;
use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::service::SubscriptionSink;
use rmcp::{ErrorData, Peer, RoleServer};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tonic::metadata::MetadataMap;

use crate::backend::Backend;
use crate::resources::Resource;

/// Maximum number of resources that one client, or one `subscriptions/listen`, subscribes to.
pub const MAX_SUBSCRIPTIONS: usize = 100;
/// Pauses before a stream that ended is opened again: 2 s, doubled up to a minute while none opens. Each attempt may
/// start the service of this machine, which may be unable to start until a user mends something.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_secs(2))
    .with_max_delay(MAX_PAUSE)
    .without_max_times();
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The resources that a client subscribed to, each with the URIs that it used for it.
#[derive(Debug, Clone, Default)]
pub struct Followed(BTreeMap<Resource, BTreeSet<String>>);

impl Followed {
    /// Adds a URI. Returns `false`, and adds nothing, if there are [`MAX_SUBSCRIPTIONS`] already.
    pub fn add(&mut self, uri: &str, resource: Resource) -> bool {
        let uris = self.0.get(&resource);
        if uris.is_some_and(|uris| uris.contains(uri)) {
            return true;
        }
        let count: usize = self.0.values().map(BTreeSet::len).sum();
        if count == MAX_SUBSCRIPTIONS {
            return false;
        }
        self.0.entry(resource).or_default().insert(uri.to_owned())
    }

    /// Whether there is no URI.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn remove(&mut self, uri: &str, resource: &Resource) {
        if let Some(uris) = self.0.get_mut(resource) {
            uris.remove(uri);
            if uris.is_empty() {
                self.0.remove(resource);
            }
        }
    }

    /// Every URI.
    fn all(&self) -> Vec<String> {
        self.0.values().flatten().cloned().collect()
    }

    /// The subscribed URIs of the resources that this change concerns.
    fn changed_by(&self, change: &pb::Change) -> Vec<String> {
        let changed = if change.entity == "artifact" {
            [Some(Resource::Artifact(change.id.clone())), None]
        } else {
            [
                change.id.parse().ok().map(Resource::Entry),
                change.thread_id.clone().map(Resource::Thread),
            ]
        };
        let uris = changed.iter().flatten().filter_map(|one| self.0.get(one));
        uris.flatten().cloned().collect()
    }
}

/// Where notifications go.
#[derive(Debug, Clone)]
pub enum Recipient {
    /// A client that subscribed with `resources/subscribe`.
    Client(Peer<RoleServer>),
    /// A `subscriptions/listen`.
    Listener(SubscriptionSink),
}

impl Recipient {
    /// Sends a notification for each URI. `false` when the client is gone.
    async fn notify(&self, uris: Vec<String>) -> bool {
        for uri in uris {
            let sent = match self {
                Self::Client(peer) => {
                    let params = ResourceUpdatedNotificationParam::new(uri);
                    peer.notify_resource_updated(params).await.is_ok()
                }
                Self::Listener(sink) => sink.notify_resource_updated(uri).await.is_ok(),
            };
            if !sent {
                return false;
            }
        }
        true
    }
}

/// Follows the changes after `cursor` until the client is gone. Without a cursor it first notifies of every resource,
/// because each may have changed before the stream was open. A broken stream is opened again where it ended. So
/// is one whose key or token became invalid, if `metadata` then has another one.
///
/// # Errors
/// When the service refuses the stream for good, such as after the key was deactivated and no other took its place.
pub async fn follow(
    backend: &Backend,
    metadata: impl Fn() -> MetadataMap + Send + Sync,
    mut cursor: Option<String>,
    followed: watch::Receiver<Followed>,
    recipient: Recipient,
) -> Result<(), Error> {
    let mut pauses = PAUSES.build();
    loop {
        let mut may_have_missed = cursor.is_none();
        let mut request = tonic::Request::new(pb::WatchRequest {
            cursor: Some(cursor.clone().unwrap_or_else(|| "now".to_owned())),
            ..pb::WatchRequest::default()
        });
        let opened_with = metadata();
        *request.metadata_mut() = opened_with.clone();
        let ended = match backend.changes().watch(request).await {
            Err(status) => Some(backend.error(&status, false)),
            Ok(stream) => {
                pauses = PAUSES.build();
                let mut stream = stream.into_inner();
                loop {
                    let frame = match stream.message().await {
                        Ok(Some(frame)) => frame,
                        Ok(None) => break None,
                        Err(status) => break Some(backend.error(&status, false)),
                    };
                    if !frame.cursor.is_empty() {
                        cursor = Some(frame.cursor);
                    }
                    let uris = match frame.frame {
                        Some(Frame::Opened(_)) if std::mem::take(&mut may_have_missed) => {
                            followed.borrow().all()
                        }
                        Some(Frame::Change(change) | Frame::Left(change)) => {
                            followed.borrow().changed_by(&change)
                        }
                        // A slow reader loses its stream but no change: it continues at its cursor.
                        Some(Frame::Resync(resync)) if resync.reason != "SLOW_CONSUMER" => {
                            cursor = None;
                            Vec::new()
                        }
                        Some(Frame::End(end)) if end.reason != "DRAINING" => {
                            let sentence =
                                format!("the service ended the stream of changes: {}", end.reason);
                            break Some(Error::new(Reason::Unauthenticated, sentence));
                        }
                        _ => Vec::new(),
                    };
                    if !recipient.notify(uris).await {
                        return Ok(());
                    }
                }
            }
        };
        if let Some(error) = ended {
            let has_another_key =
                || metadata().get("authorization") != opened_with.get("authorization");
            match error.reason {
                Reason::Unauthenticated if has_another_key() => {}
                Reason::CursorInvalid | Reason::CursorCompacted | Reason::ResyncRequired => {
                    cursor = None;
                }
                Reason::Unauthenticated
                | Reason::ScopeMissing
                | Reason::InvalidArgument
                | Reason::FeatureUnavailable
                | Reason::NotFound => return Err(error),
                _ => {}
            }
        }
        tokio::time::sleep(pauses.next().unwrap_or(MAX_PAUSE)).await;
    }
}

/// The subscriptions of the client on stdio that uses `resources/subscribe`.
#[derive(Debug, Default)]
pub struct Subscriptions {
    followed: watch::Sender<Followed>,
    /// The task that follows the changes, from the first subscription on.
    following: tokio::sync::Mutex<JoinSet<()>>,
}

impl Subscriptions {
    /// Subscribes to a resource.
    ///
    /// # Errors
    /// "Invalid params" beyond [`MAX_SUBSCRIPTIONS`].
    pub fn add(&self, uri: &str, resource: Resource) -> Result<(), ErrorData> {
        let mut is_added = false;
        self.followed
            .send_modify(|followed| is_added = followed.add(uri, resource));
        if is_added {
            return Ok(());
        }
        let sentence = format!("a client can subscribe to at most {MAX_SUBSCRIPTIONS} resources");
        Err(ErrorData::invalid_params(sentence, None))
    }

    /// Ends a subscription.
    pub fn remove(&self, uri: &str, resource: &Resource) {
        self.followed
            .send_modify(|followed| followed.remove(uri, resource));
    }

    /// Starts the task that follows the changes after `cursor`, unless it runs already.
    ///
    /// # Errors
    /// The error of `cursor`, which is awaited only if the task does not run.
    pub async fn start(
        &self,
        backend: &Backend,
        metadata: impl Fn() -> MetadataMap + Send + Sync + 'static,
        cursor: impl Future<Output = Result<String, ErrorData>>,
        peer: &Peer<RoleServer>,
    ) -> Result<(), ErrorData> {
        let mut following = self.following.lock().await;
        // The task ends when the service refuses the stream for good.
        while following.try_join_next().is_some() {}
        if !following.is_empty() {
            return Ok(());
        }
        let cursor = cursor.await?;
        let (backend, recipient) = (backend.clone(), Recipient::Client(peer.clone()));
        let followed = self.followed.subscribe();
        following.spawn(async move {
            let ended = follow(&backend, metadata, Some(cursor), followed, recipient).await;
            if let Err(error) = ended {
                tracing::warn!(%error, "Subscriptions to resources ended");
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_does_not_open_is_tried_less_and_less_often() {
        let pauses = PAUSES.build().take(7);
        // The library multiplies with 32 bits, which loses some nanoseconds.
        let seconds: Vec<f32> = pauses.map(|pause| pause.as_secs_f32().round()).collect();
        assert_eq!(seconds, [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]);
    }

    #[test]
    fn a_refused_subscription_leaves_nothing_behind() {
        let mut followed = Followed::default();
        for id in 0..MAX_SUBSCRIPTIONS as i64 {
            assert!(followed.add(&format!("context://contexts/{id}"), Resource::Entry(id)));
        }
        assert!(!followed.add("context://contexts/-1", Resource::Entry(-1)));
        assert_eq!(followed.0.len(), MAX_SUBSCRIPTIONS);
        assert!(
            followed.add("context://contexts/0", Resource::Entry(0)),
            "again"
        );
        for id in 0..MAX_SUBSCRIPTIONS as i64 {
            followed.remove(&format!("context://contexts/{id}"), &Resource::Entry(id));
        }
        assert!(followed.is_empty());
    }
}
