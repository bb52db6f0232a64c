//! Wakes the subscriptions that wait for an owner's next change.
//!
//! A store announces commits to its [`ChangeNotifier`], which serves all owners of the process. A store that learns of
//! other processes' commits has one task that reads the revisions of all owners with subscriptions.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::OwnerId;

/// A commit that changes entries of more threads than this is announced as [`Touched::Anything`].
const MAX_THREADS: usize = 16;
/// Each time the revision reaches or passes a multiple of this number, all subscriptions are woken, also those to other
/// threads, so that none of them falls far behind.
const WAKE_ALL_AFTER: i64 = 1000;

/// Which subscriptions a commit concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Touched {
    /// All subscriptions of the owner. For a commit whose changed threads are unknown or too many.
    Anything,
    /// Subscriptions to all changes, and subscriptions to one of these threads. Changes of artifacts have no thread.
    Threads(BTreeSet<String>),
}

impl Touched {
    /// The start value, to which [`add`](Self::add) adds threads.
    pub const NOTHING: Self = Self::Threads(BTreeSet::new());

    /// Adds a change of an entry of this thread.
    pub fn add(&mut self, thread_id: &str) {
        let Self::Threads(threads) = self else { return };
        if !threads.contains(thread_id) {
            threads.insert(thread_id.to_owned());
        }
        if threads.len() > MAX_THREADS {
            *self = Self::Anything;
        }
    }
}

/// The subscriptions to changes, and the latest announced revision of each owner with a subscription.
#[derive(Debug, Default)]
pub struct ChangeNotifier {
    owners: Mutex<HashMap<OwnerId, Topic>>,
    /// The number of owners with a subscription, so that a commit without any costs nothing.
    count: AtomicUsize,
    subscribed: Notify,
}

#[derive(Debug, Default)]
struct Topic {
    revision: Option<i64>,
    /// By thread. `None` is the channel of subscriptions to all changes.
    channels: HashMap<Option<String>, Channel>,
}

#[derive(Debug, Default)]
struct Channel {
    wake: watch::Sender<()>,
    subscriptions: usize,
}

impl Topic {
    fn wake(&self, thread: Option<&str>) {
        if let Some(channel) = self.channels.get(&thread.map(str::to_owned)) {
            channel.wake.send_replace(());
        }
    }
}

impl ChangeNotifier {
    /// Subscribes to an owner's changes until the result is dropped.
    #[must_use]
    pub fn subscribe(self: &Arc<Self>, owner: &OwnerId) -> Subscription {
        self.subscribe_to(owner, None)
    }

    /// Like [`subscribe`](Self::subscribe), but with `thread` only to changes of entries of this thread. Other changes
    /// may wake the subscription too.
    #[must_use]
    pub fn subscribe_to(self: &Arc<Self>, owner: &OwnerId, thread: Option<&str>) -> Subscription {
        let thread = thread.map(str::to_owned);
        let mut owners = self.lock();
        let topic = owners.entry(owner.clone()).or_default();
        let channel = topic.channels.entry(thread.clone()).or_default();
        channel.subscriptions += 1;
        let woken = channel.wake.subscribe();
        self.count.store(owners.len(), Ordering::SeqCst);
        drop(owners);
        self.subscribed.notify_one();
        Subscription {
            notifier: Arc::clone(self),
            owner: owner.clone(),
            thread,
            woken,
        }
    }

    /// Announces the owner's revision after a commit. If it differs from the last announced one, the subscriptions that
    /// `touched` concerns are woken. A store may pass [`Touched::Threads`] only if it announces every commit, in order.
    pub fn announce(&self, owner: &OwnerId, revision: i64, touched: &Touched) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut owners = self.lock();
        let Some(topic) = owners.get_mut(owner) else {
            return;
        };
        let before = topic.revision.replace(revision);
        if before == Some(revision) {
            return;
        }
        let before = before.unwrap_or(0);
        let is_next = revision > before && before / WAKE_ALL_AFTER == revision / WAKE_ALL_AFTER;
        match touched {
            Touched::Threads(threads) if is_next => {
                topic.wake(None);
                for thread in threads {
                    topic.wake(Some(thread));
                }
            }
            _ => {
                for channel in topic.channels.values() {
                    channel.wake.send_replace(());
                }
            }
        }
    }

    /// The owners with a subscription.
    #[must_use]
    pub fn owners(&self) -> Vec<OwnerId> {
        self.lock().keys().cloned().collect()
    }

    /// Waits until there is a subscription.
    pub async fn some_subscription(&self) {
        while self.count.load(Ordering::SeqCst) == 0 {
            self.subscribed.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OwnerId, Topic>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A subscription to one owner's changes.
#[derive(Debug)]
pub struct Subscription {
    notifier: Arc<ChangeNotifier>,
    owner: OwnerId,
    thread: Option<String>,
    woken: watch::Receiver<()>,
}

impl Subscription {
    /// Forgets earlier announcements. The caller then reads the feed: it contains every change announced before.
    pub fn begin_read(&mut self) {
        self.woken.mark_unchanged();
    }

    /// Waits for an announcement after [`begin_read`](Self::begin_read). It may concern changes that the caller has
    /// already read.
    pub async fn changed(&mut self) {
        // The sender lives as long as this subscription is counted.
        let _ = self.woken.changed().await;
    }

    /// Whether the subscription is to one thread. Not every change of the owner wakes such a subscription.
    #[must_use]
    pub const fn is_of_thread(&self) -> bool {
        self.thread.is_some()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut owners = self.notifier.lock();
        if let Some(topic) = owners.get_mut(&self.owner) {
            if let Some(channel) = topic.channels.get_mut(&self.thread) {
                channel.subscriptions -= 1;
                if channel.subscriptions == 0 {
                    topic.channels.remove(&self.thread);
                }
            }
            if topic.channels.is_empty() {
                owners.remove(&self.owner);
            }
        }
        self.notifier.count.store(owners.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn a_commit_after_the_start_of_a_read_wakes_its_owner_alone() {
        let notifier = Arc::new(ChangeNotifier::default());
        let (mine, theirs) = (OwnerId::new("mine"), OwnerId::new("theirs"));
        let (mut me, mut them) = (notifier.subscribe(&mine), notifier.subscribe(&theirs));
        let announce = |revision| notifier.announce(&mine, revision, &Touched::NOTHING);
        announce(1);
        me.begin_read();
        assert!(me.changed().now_or_never().is_none(), "it was read");
        announce(2);
        assert!(me.changed().now_or_never().is_some());
        assert!(them.changed().now_or_never().is_none());
        announce(2);
        assert!(me.changed().now_or_never().is_none(), "nothing new");
        announce(1);
        assert!(me.changed().now_or_never().is_some(), "a new incarnation");
    }

    fn touching(thread: &str) -> Touched {
        let mut touched = Touched::NOTHING;
        touched.add(thread);
        touched
    }

    #[test]
    fn a_subscription_to_a_thread_sleeps_through_changes_of_others() {
        let notifier = Arc::new(ChangeNotifier::default());
        let owner = OwnerId::new("o");
        let mut one = notifier.subscribe_to(&owner, Some("a"));
        let mut all = notifier.subscribe(&owner);
        let mut woken = |revision, touched: &Touched| {
            one.begin_read();
            all.begin_read();
            notifier.announce(&owner, revision, touched);
            assert!(all.changed().now_or_never().is_some());
            one.changed().now_or_never().is_some()
        };
        assert!(!woken(1, &touching("b")));
        assert!(woken(2, &touching("a")));
        assert!(!woken(3, &Touched::NOTHING), "an artifact");
        assert!(woken(4, &Touched::Anything));
        assert!(!woken(999, &touching("b")));
        assert!(woken(1000, &touching("b")), "far behind");
        assert!(woken(7, &touching("b")), "a new incarnation");
        let mut many = Touched::NOTHING;
        for number in 0..=MAX_THREADS {
            many.add(&number.to_string());
        }
        assert_eq!(many, Touched::Anything);
    }

    #[test]
    fn an_owner_is_forgotten_with_its_last_subscription() {
        let notifier = Arc::new(ChangeNotifier::default());
        let owner = OwnerId::new("o");
        let two = [notifier.subscribe(&owner), notifier.subscribe(&owner)];
        assert_eq!(notifier.owners(), [owner]);
        assert!(notifier.some_subscription().now_or_never().is_some());
        let [first, second] = two;
        drop(first);
        assert_eq!(notifier.owners().len(), 1);
        drop(second);
        assert!(notifier.owners().is_empty());
        assert!(notifier.some_subscription().now_or_never().is_none());
    }
}
