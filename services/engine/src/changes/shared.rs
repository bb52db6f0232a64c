//! Reads of the feed that several readers share.
//!
//! A commit wakes all streams of its owner at once, and those that are up to date need the same page. One of them reads
//! it. Streams that need it while that read runs wait for the next read, which they share: a read that has begun may
//! not see the commit that woke them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use context_model::Result;
use context_store::{Feed, OwnerId};
use tokio::sync::OnceCell;

use crate::lock::locked;

/// A part of an owner's feed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Part {
    pub owner: OwnerId,
    /// The first revision.
    pub from: i64,
    /// Maximum number of changes.
    pub limit: u32,
}

/// The readers of each part that is being read.
#[derive(Default)]
pub(super) struct SharedReads(Mutex<HashMap<Part, Readers>>);

/// The readers of one part.
#[derive(Default)]
struct Readers {
    count: usize,
    /// Held by the read that runs, so that only one runs at a time.
    running: Arc<tokio::sync::Mutex<()>>,
    /// The read that has not begun.
    next: Arc<OnceCell<Feed>>,
}

impl SharedReads {
    /// The result of a read of this part that begins after this call: either `read`, or the read of another reader.
    ///
    /// # Errors
    /// Those of `read`. Other readers do not get them.
    pub async fn read(
        &self,
        part: Part,
        read: impl Future<Output = Result<Feed>> + Send,
    ) -> Result<Feed> {
        let (running, next) = {
            let mut parts = locked(&self.0);
            let readers = parts.entry(part.clone()).or_default();
            readers.count += 1;
            (Arc::clone(&readers.running), Arc::clone(&readers.next))
        };
        let _counted = CountedReader {
            reads: self,
            part: &part,
        };
        let feed = next.get_or_try_init(|| async {
            let _running = running.lock().await;
            self.begin(&part, &next);
            read.await
        });
        Ok(feed.await?.clone())
    }

    /// Marks this read as begun. Readers that come later share another one.
    fn begin(&self, part: &Part, read: &Arc<OnceCell<Feed>>) {
        if let Some(readers) = locked(&self.0).get_mut(part)
            && Arc::ptr_eq(&readers.next, read)
        {
            readers.next = Arc::default();
        }
    }
}

/// A reader that is counted until this value is dropped, even if its caller stops waiting.
struct CountedReader<'a> {
    reads: &'a SharedReads,
    part: &'a Part,
}

impl Drop for CountedReader<'_> {
    fn drop(&mut self) {
        let mut parts = locked(&self.reads.0);
        if let Some(readers) = parts.get_mut(self.part) {
            readers.count -= 1;
            if readers.count == 0 {
                parts.remove(self.part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use context_model::{Error, Reason};
    use futures::FutureExt as _;
    use futures::future::join_all;
    use tokio::sync::Notify;

    use super::*;

    fn part() -> Part {
        Part {
            owner: OwnerId::default(),
            from: 1,
            limit: 100,
        }
    }

    /// Reads that return how many began before them, each when it is allowed to end.
    #[derive(Default)]
    struct Source {
        begun: AtomicI64,
        may_end: Notify,
    }

    impl Source {
        async fn read(&self) -> Result<Feed> {
            let revision = self.begun.fetch_add(1, Ordering::SeqCst);
            self.may_end.notified().await;
            Ok(Feed {
                revision,
                ..Feed::of_no_owner()
            })
        }
    }

    #[tokio::test]
    async fn readers_that_come_during_a_read_share_the_next_one() {
        let (reads, source) = (SharedReads::default(), Source::default());
        let read = || reads.read(part(), source.read());
        let mut first = Box::pin(read());
        assert!(first.as_mut().now_or_never().is_none(), "it has begun");
        let mut others = Box::pin(join_all((0..9).map(|_| read())));
        assert!(others.as_mut().now_or_never().is_none());
        assert_eq!(source.begun.load(Ordering::SeqCst), 1);
        source.may_end.notify_one();
        assert_eq!(first.await.unwrap().revision, 0);
        source.may_end.notify_one();
        for feed in others.await {
            assert_eq!(feed.unwrap().revision, 1, "a read that began later");
        }
        assert_eq!(source.begun.load(Ordering::SeqCst), 2);
        assert!(locked(&reads.0).is_empty());
    }

    #[tokio::test]
    async fn a_reader_that_leaves_or_fails_leaves_the_read_to_the_next() {
        let (reads, source) = (SharedReads::default(), Source::default());
        let mut leaves = Box::pin(reads.read(part(), source.read()));
        assert!(leaves.as_mut().now_or_never().is_none());
        let fails = reads.read(part(), async {
            Err(Error::new(Reason::StoreUnavailable, "not now"))
        });
        let mut fails = Box::pin(fails);
        assert!(fails.as_mut().now_or_never().is_none());
        let mut stays = Box::pin(reads.read(part(), source.read()));
        assert!(stays.as_mut().now_or_never().is_none());
        drop(leaves);
        assert!(fails.await.is_err());
        source.may_end.notify_one();
        assert_eq!(stays.await.unwrap().revision, 1);
        assert!(locked(&reads.0).is_empty());
    }
}
