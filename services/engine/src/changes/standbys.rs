//! A store whose connections lead to several standbys, of which some are behind others. Only its feed can be read.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use context_model::{
    EntryUpdate, Filter, NewEntry, TagPrefix, ThreadNamePart, ThreadSet, Timestamp, Violations,
};
use context_store::{
    ArtifactStore, Change, ChangeKind, ChangeNotifier, ChangeStore, Changed, DayCounts,
    DeleteCriteria, DocumentKind, Feed, FtsPage, FtsSearch, Idempotency, KeyStore, MetadataSample,
    OwnerId, Page, Read, Result, Retention, RowSelection, SealStore, SearchPage, Store,
    StoreStatistics, StoredBatch, SummaryStore, TagsPage, ThreadsPage, Usage, VectorStore,
    WriteOptions, Written,
};
use context_text::Query;

use super::feed::Changes;
use super::page::Position;
use super::selection::Selection;
use crate::access::Caller;
use crate::lock::locked;

const UNUSED: &str = "only the feed is read";

/// The revisions of the standbys that serve the next reads. A read that requires a revision waits for one that has it.
struct Standbys(Mutex<VecDeque<i64>>);

/// Changes whose next reads are served by standbys with these revisions.
pub(super) fn served_by(revisions: impl IntoIterator<Item = i64>) -> Changes {
    let standbys = Standbys(Mutex::new(revisions.into_iter().collect()));
    Changes::new(Arc::new(standbys))
}

/// The change with this revision. Each commit has two changes.
fn change(revision: i64) -> Change {
    Change {
        revision,
        at: Timestamp(revision),
        kind: ChangeKind::Create,
        changed: Changed::Context {
            id: revision,
            thread_id: "t".to_owned(),
            source: None,
        },
        version: Some(1),
        key_id: None,
        commit_end: revision % 2 == 0,
    }
}

#[async_trait]
impl ChangeStore for Standbys {
    async fn feed(&self, _: &OwnerId, from: i64, limit: u32, read: Read) -> Result<Feed> {
        let revision = read.min_revision.unwrap_or_else(|| {
            let next = locked(&self.0).pop_front();
            next.expect("no further read without a required revision")
        });
        Ok(Feed {
            incarnation: "a".to_owned(),
            revision,
            oldest: 1,
            is_behind: revision < from,
            changes: (from..=revision).take(limit as usize).map(change).collect(),
        })
    }

    async fn compact(&self, _: Retention) -> Result<u64> {
        unreachable!("{UNUSED}")
    }

    fn notifier(&self) -> &Arc<ChangeNotifier> {
        unreachable!("{UNUSED}")
    }
}

#[async_trait]
impl Store for Standbys {
    fn changes(&self) -> &dyn ChangeStore {
        self
    }

    fn backend(&self) -> &'static str {
        unreachable!("{UNUSED}")
    }

    async fn check(&self) -> Result<()> {
        unreachable!("{UNUSED}")
    }

    fn vectors(&self) -> &dyn VectorStore {
        unreachable!("{UNUSED}")
    }

    fn summaries(&self) -> &dyn SummaryStore {
        unreachable!("{UNUSED}")
    }

    fn seals(&self) -> &dyn SealStore {
        unreachable!("{UNUSED}")
    }

    fn artifacts(&self) -> &dyn ArtifactStore {
        unreachable!("{UNUSED}")
    }

    fn keys(&self) -> &dyn KeyStore {
        unreachable!("{UNUSED}")
    }

    async fn store_contexts(
        &self,
        _: &OwnerId,
        _: Vec<NewEntry>,
        _: bool,
        _: WriteOptions,
    ) -> Result<Written<StoredBatch>> {
        unreachable!("{UNUSED}")
    }

    async fn update_contexts(
        &self,
        _: &OwnerId,
        _: Vec<EntryUpdate>,
        _: bool,
        _: WriteOptions,
    ) -> Result<Written<StoredBatch>> {
        unreachable!("{UNUSED}")
    }

    async fn delete_contexts(
        &self,
        _: &OwnerId,
        _: DeleteCriteria,
        _: WriteOptions,
    ) -> Result<Written<u64>> {
        unreachable!("{UNUSED}")
    }

    async fn get_contexts(
        &self,
        _: &OwnerId,
        _: Vec<i64>,
        _: RowSelection,
        _: Read,
    ) -> Result<SearchPage> {
        unreachable!("{UNUSED}")
    }

    async fn search_contexts(
        &self,
        _: &OwnerId,
        _: Filter,
        _: Page,
        _: RowSelection,
        _: Read,
    ) -> Result<SearchPage> {
        unreachable!("{UNUSED}")
    }

    async fn fts_search(
        &self,
        _: &OwnerId,
        _: FtsSearch,
        _: Filter,
        _: Page,
        _: RowSelection,
        _: Read,
    ) -> Result<FtsPage> {
        unreachable!("{UNUSED}")
    }

    async fn document_frequencies(
        &self,
        _: &OwnerId,
        _: DocumentKind,
        _: Vec<Query>,
        _: u32,
        _: Read,
    ) -> Result<Vec<u64>> {
        unreachable!("{UNUSED}")
    }

    async fn list_threads(
        &self,
        _: &OwnerId,
        _: Option<ThreadSet>,
        _: Option<ThreadNamePart>,
        _: Page,
        _: Read,
    ) -> Result<ThreadsPage> {
        unreachable!("{UNUSED}")
    }

    async fn list_tags(
        &self,
        _: &OwnerId,
        _: Filter,
        _: Option<TagPrefix>,
        _: Page,
        _: Read,
    ) -> Result<TagsPage> {
        unreachable!("{UNUSED}")
    }

    async fn metadata_sample(
        &self,
        _: &OwnerId,
        _: Filter,
        _: u32,
        _: u32,
        _: Read,
    ) -> Result<MetadataSample> {
        unreachable!("{UNUSED}")
    }

    async fn days(&self, _: &OwnerId, _: Filter, _: u32, _: Read) -> Result<DayCounts> {
        unreachable!("{UNUSED}")
    }

    async fn statistics(
        &self,
        _: &OwnerId,
        _: Option<ThreadSet>,
        _: Read,
    ) -> Result<StoreStatistics> {
        unreachable!("{UNUSED}")
    }

    async fn usage(&self, _: &OwnerId) -> Result<Usage> {
        unreachable!("{UNUSED}")
    }

    async fn is_recorded(&self, _: &OwnerId, _: &Idempotency, _: Timestamp) -> Result<bool> {
        unreachable!("{UNUSED}")
    }

    async fn recorded_bytes(&self, _: &OwnerId, _: Timestamp) -> Result<u64> {
        unreachable!("{UNUSED}")
    }

    async fn close(&self) {}
}

fn everything(caller: &Caller) -> Selection {
    let mut violations = Violations::default();
    Selection::new(
        caller,
        context_model::FilterInput::default(),
        None,
        false,
        0,
        &mut violations,
    )
}

#[tokio::test]
async fn the_cursor_now_is_valid_if_the_second_read_reaches_a_standby_that_is_behind() {
    let caller = Caller::local();
    let changes = served_by([6, 4, 6]);
    let now = changes
        .locate(&caller.owner, Position::Now, Read::default())
        .await
        .expect("a cursor");
    assert_eq!(now.revision, 6);
    let selection = everything(&caller);
    let page = changes
        .page(
            &caller,
            &selection,
            Position::After(now),
            10,
            Read::default(),
        )
        .await
        .expect("a page");
    assert_eq!((page.changes.len(), page.next.revision), (0, 6));
}

#[tokio::test]
async fn the_end_of_the_feed_of_an_owner_that_never_wrote_needs_no_wait() {
    let changes = served_by([0]);
    let now = changes
        .locate(&OwnerId::default(), Position::Now, Read::default())
        .await
        .expect("a cursor");
    assert_eq!(now.revision, 0);
}

#[tokio::test]
async fn a_commit_stays_whole_if_its_rest_is_read_from_a_standby_that_is_behind() {
    let caller = Caller::local();
    let changes = served_by([4, 2]);
    let selection = everything(&caller);
    let page = changes
        .page(&caller, &selection, Position::Oldest, 3, Read::default())
        .await
        .expect("a page");
    assert_eq!(page.next.revision, 4);
}

#[tokio::test]
async fn a_state_that_was_shown_is_found_although_a_standby_is_behind() {
    let changes = served_by([4]);
    let shown = changes
        .shown_at(&OwnerId::default(), 6, None, None)
        .await
        .expect("the state is not lost");
    assert_eq!(shown.map(|shown| shown.revision), Some(6));
}
