//! Reading entries by id and by filter.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use context_model::{ContentType, Filter, MetadataPath};
use context_store::{
    FtsPage, FtsSearch, Page, RowSelection, ScoredEntry, SearchPage, StoreError, Taken,
};
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;

use crate::collection::Collection;
use crate::entries;
use crate::failure::store_error;
use crate::filter;
use crate::fts::{self, Found};
use crate::owners::{Owner, id_of_row};
use crate::schema::changes;

/// Entries by id, newest first, without those that changed after `as_of`.
pub(crate) fn get(
    conn: &mut SqliteConnection,
    owner: &Owner,
    ids: &[i64],
    selection: &RowSelection,
    as_of: Option<i64>,
) -> Result<SearchPage, StoreError> {
    let (page, taken) = get_taking(conn, owner, ids, selection, as_of)?;
    taken.keep();
    Ok(page)
}

/// Like [`get`], for a read that may run again. See [`entries::load_taking`].
fn get_taking(
    conn: &mut SqliteConnection,
    owner: &Owner,
    ids: &[i64],
    selection: &RowSelection,
    as_of: Option<i64>,
) -> Result<(SearchPage, Taken), StoreError> {
    let mut row_ids: BTreeSet<i64> = ids.iter().filter_map(|&id| owner.row_id(id)).collect();
    if let Some(revision) = as_of.filter(|revision| *revision < owner.revision) {
        let changed = changes::table
            .filter(
                changes::owner
                    .eq(owner.owner)
                    .and(changes::revision.gt(revision))
                    .and(changes::entity.eq("context")),
            )
            .select(changes::entity_id);
        let changed: Vec<String> = changed.load(conn).map_err(store_error)?;
        for row_id in changed
            .iter()
            .filter_map(|id| owner.row_id(id.parse().ok()?))
        {
            row_ids.remove(&row_id);
        }
    }
    let row_ids: Vec<i64> = row_ids.into_iter().collect();
    let (mut entries, taken) = entries::load_taking(conn, owner.owner, &row_ids, selection)?;
    entries.sort_unstable_by_key(|entry| Reverse((entry.created_at, entry.id)));
    let page = SearchPage {
        entries,
        has_more: false,
        revision: owner.revision,
        plan: Vec::new(),
    };
    Ok((page, taken))
}

/// Like [`get`]. `None` when images would have to be read, which can be many bytes. No memory stays taken then.
pub(crate) fn get_without_images(
    conn: &mut SqliteConnection,
    owner: &Owner,
    ids: &[i64],
    selection: &RowSelection,
    as_of: Option<i64>,
) -> Result<Option<SearchPage>, StoreError> {
    let (mut page, taken) = get_taking(
        conn,
        owner,
        ids,
        &RowSelection {
            images: false,
            ..selection.clone()
        },
        as_of,
    )?;
    if selection.images {
        if page
            .entries
            .iter()
            .any(|entry| entry.content_type == ContentType::Multimodal)
        {
            return Ok(None);
        }
        page.entries
            .iter_mut()
            .for_each(|entry| entry.images = Some(Vec::new()));
    }
    taken.keep();
    Ok(Some(page))
}

/// Entries that satisfy the filter, newest first.
pub(crate) fn search(
    conn: &mut SqliteConnection,
    owner: &Owner,
    filter: &Filter,
    page: Page,
    indexed: &[MetadataPath],
    selection: &RowSelection,
) -> Result<SearchPage, StoreError> {
    let mut selected = filter::select(
        conn,
        filter,
        owner.owner,
        page.and_one(),
        indexed,
        owner.entry_count,
    )
    .map_err(store_error)?;
    let has_more = page.cut(&mut selected.row_ids);
    let entries = entries::load(conn, owner.owner, &selected.row_ids, selection)?;
    let plan = if selection.explain {
        selected.statement.explain(conn).map_err(store_error)?
    } else {
        Vec::new()
    };
    Ok(SearchPage {
        entries,
        has_more,
        revision: owner.revision,
        plan,
    })
}

/// Entries that match the search and satisfy the filter, best first.
pub(crate) fn ranked(
    conn: &mut SqliteConnection,
    owner: &Owner,
    search: &FtsSearch,
    filter: &Filter,
    page: Page,
    indexed: &[MetadataPath],
    selection: &RowSelection,
) -> Result<FtsPage, StoreError> {
    let Found {
        mut rows,
        used_fallback,
        capped_at,
        statement,
    } = fts::search(
        conn,
        search,
        filter,
        Collection::entries(owner.owner),
        page.and_one(),
        indexed,
    )
    .map_err(store_error)?;
    let has_more = page.cut(&mut rows);
    let row_ids: Vec<i64> = rows.iter().map(|(row_id, _)| *row_id).collect();
    let scores: HashMap<i64, f64> = rows
        .into_iter()
        .map(|(row_id, score)| (id_of_row(row_id), score))
        .collect();
    let entries = entries::load(conn, owner.owner, &row_ids, selection)?;
    let plan = if selection.explain {
        statement.explain(conn).map_err(store_error)?
    } else {
        Vec::new()
    };
    let scored = entries.into_iter().filter_map(|entry| {
        scores
            .get(&entry.id)
            .map(|&score| ScoredEntry { entry, score })
    });
    Ok(FtsPage {
        entries: scored.collect(),
        has_more,
        used_fallback,
        capped_at,
        revision: owner.revision,
        plan,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use context_model::{
        Error, JsonObject, Metadata, NewEntry, NewImage, Source, ThreadId, Timestamp, held_bytes,
    };
    use context_store::{Memory, Meter, OwnerId, Read, Store as _, WriteOptions};

    use super::*;
    use crate::config::Config;
    use crate::store::SqliteStore;

    #[derive(Default)]
    struct Counter(AtomicU64);

    impl Meter for Counter {
        fn take(&self, bytes: u64) -> Result<(), Error> {
            self.0.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        }

        fn give_back(&self, bytes: u64) {
            self.0.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn an_entry_that_is_read_again_for_its_images_is_counted_once() {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(Config::new(directory.path().join("store.db"))).unwrap();
        let owner = OwnerId::new("owner");
        let object = JsonObject::from_iter([("a".to_owned(), 1.into())]);
        let image_metadata = r#"{"a":1}"#.len() + held_bytes(&object);
        let entry = NewEntry {
            thread_id: ThreadId::from_stored("t".to_owned()),
            source: Source::User,
            text: "text".to_owned(),
            images: Some(vec![NewImage {
                data: vec![1, 2, 3],
                mime_type: "image/png".to_owned(),
                metadata: Some(Metadata::from_stored(object)),
            }]),
            metadata: None,
            tags: None,
        };
        let options = WriteOptions {
            now: Timestamp(1),
            idempotency: None,
            key_id: None,
            embeddings: Vec::new(),
        };
        store
            .store_contexts(&owner, vec![entry], true, options)
            .await
            .unwrap();
        let counter = Arc::new(Counter::default());
        let selection = RowSelection {
            images: true,
            text_chars: None,
            explain: false,
            max_bytes: 1000,
            memory: Memory::counted_by(counter.clone()),
        };
        let page = store
            .get_contexts(&owner, vec![1], selection, Read::default())
            .await
            .unwrap();
        assert_eq!(page.entries.len(), 1);
        let (thread, text, metadata, tags, image) = (1, 4, 2, 2, 3);
        assert_eq!(
            counter.0.load(Ordering::Relaxed),
            thread + text + metadata + tags + image + image_metadata as u64
        );
        store.close().await;
    }
}
