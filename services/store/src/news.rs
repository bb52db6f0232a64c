//! Wakes those who wait for an owner's next change.
//!
//! A store announces commits here. One object serves a whole process: a store that learns of commits from elsewhere has
//! one task that does so for all owners with subscriptions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::OwnerId;

/// The latest known revision of each owner with a subscription.
#[derive(Debug, Default)]
pub struct News {
    owners: Mutex<HashMap<OwnerId, Topic>>,
    /// The number of owners with a subscription, so that a commit without any costs nothing.
    count: AtomicUsize,
    subscribed: Notify,
}

#[derive(Debug)]
struct Topic {
    revision: watch::Sender<Option<i64>>,
    subscriptions: usize,
}

impl News {
    /// Subscribes to an owner's changes until the result is dropped.
    #[must_use]
    pub fn subscribe(self: &Arc<Self>, owner: &OwnerId) -> Subscription {
        let mut owners = self.lock();
        let topic = owners.entry(owner.clone()).or_insert_with(|| Topic {
            revision: watch::Sender::new(None),
            subscriptions: 0,
        });
        topic.subscriptions += 1;
        let revision = topic.revision.subscribe();
        self.count.store(owners.len(), Ordering::SeqCst);
        drop(owners);
        self.subscribed.notify_one();
        Subscription {
            news: Arc::clone(self),
            owner: owner.clone(),
            revision,
        }
    }

    /// Announces that an owner has this revision now, after the commit. Wakes the owner's subscriptions if it is
    /// another one than before.
    pub fn announce(&self, owner: &OwnerId, revision: i64) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(topic) = self.lock().get(owner) {
            topic.revision.send_if_modified(|known| {
                let is_new = *known != Some(revision);
                *known = Some(revision);
                is_new
            });
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
    news: Arc<News>,
    owner: OwnerId,
    revision: watch::Receiver<Option<i64>>,
}

impl Subscription {
    /// Forgets earlier announcements. The caller then reads the feed: it contains every change announced before.
    pub fn begin_read(&mut self) {
        self.revision.mark_unchanged();
    }

    /// Waits for an announcement after [`begin_read`](Self::begin_read). It may concern changes that the caller has
    /// already read.
    pub async fn changed(&mut self) {
        // The sender lives as long as this subscription is counted.
        let _ = self.revision.changed().await;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut owners = self.news.lock();
        if let Some(topic) = owners.get_mut(&self.owner) {
            topic.subscriptions -= 1;
            if topic.subscriptions == 0 {
                owners.remove(&self.owner);
            }
        }
        self.news.count.store(owners.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn a_commit_after_the_start_of_a_read_wakes_its_owner_alone() {
        let news = Arc::new(News::default());
        let (mine, theirs) = (OwnerId::new("mine"), OwnerId::new("theirs"));
        let (mut me, mut them) = (news.subscribe(&mine), news.subscribe(&theirs));
        news.announce(&mine, 1);
        me.begin_read();
        assert!(me.changed().now_or_never().is_none(), "it was read");
        news.announce(&mine, 2);
        assert!(me.changed().now_or_never().is_some());
        assert!(them.changed().now_or_never().is_none());
        news.announce(&mine, 2);
        assert!(me.changed().now_or_never().is_none(), "nothing new");
        news.announce(&mine, 1);
        assert!(me.changed().now_or_never().is_some(), "a new incarnation");
    }

    #[test]
    fn an_owner_is_forgotten_with_its_last_subscription() {
        let news = Arc::new(News::default());
        let owner = OwnerId::new("o");
        let two = [news.subscribe(&owner), news.subscribe(&owner)];
        assert_eq!(news.owners(), [owner]);
        assert!(news.some_subscription().now_or_never().is_some());
        let [first, second] = two;
        drop(first);
        assert_eq!(news.owners().len(), 1);
        drop(second);
        assert!(news.owners().is_empty());
        assert!(news.some_subscription().now_or_never().is_none());
    }
}
