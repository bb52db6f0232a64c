//! Statistics: counts of an owner's entries, images and tags, and the size of the database.

use context_model::{ContentTypeCounts, SourceCounts};
use context_store::{OwnerId, Store, StoreStatistics};

use crate::arrange::*;
use crate::suite::behaviour;

async fn statistics(store: &dyn Store) -> StoreStatistics {
    store
        .statistics(&me(), None, now())
        .await
        .expect("the statistics are read")
}

/// Stores, updates and deletes change the counts.
async fn counts_follow_every_operation(store: &dyn Store) {
    let a = entry("a")
        .tags(&["x", "y"])
        .images(&[b"1", b"2"])
        .store(store, 0)
        .await
        .id;
    let b = entry("b")
        .agent()
        .tags(&["y", "z"])
        .store(store, 1)
        .await
        .id;
    entry("b").agent().store(store, 2).await;
    entry("theirs")
        .tags(&["w"])
        .store_for(store, &OwnerId::new("other"), 0)
        .await;
    let found = statistics(store).await;
    assert_eq!(
        (
            found.total_entries,
            found.indexed_entries,
            found.total_images,
            found.unique_tags
        ),
        (2, 2, 2, 3)
    );
    assert_eq!(found.by_source, SourceCounts { user: 1, agent: 1 });
    assert_eq!(
        found.by_content_type,
        ContentTypeCounts {
            text: 1,
            multimodal: 1
        }
    );
    assert_eq!(found.revision, 2);
    assert!(found.database_bytes > 0);

    update(a)
        .tags(&["x"])
        .images(&[b"1"])
        .apply(store, 3)
        .await
        .expect("updated");
    update(b)
        .tags(&[])
        .images(&[b"1"])
        .apply(store, 4)
        .await
        .expect("updated");
    let found = statistics(store).await;
    assert_eq!((found.total_images, found.unique_tags), (2, 1));
    assert_eq!(
        found.by_content_type,
        ContentTypeCounts {
            text: 0,
            multimodal: 2
        }
    );

    delete_ids(store, &[a, b]).await;
    let found = statistics(store).await;
    assert_eq!(
        (found.total_entries, found.total_images, found.unique_tags),
        (0, 0, 0)
    );
    assert_eq!(found.by_source, SourceCounts { user: 0, agent: 0 });
    assert_eq!(
        found.by_content_type,
        ContentTypeCounts {
            text: 0,
            multimodal: 0
        }
    );
}
behaviour!(counts_follow_every_operation(store));

/// The owner's list of threads is empty too.
async fn an_owner_that_never_wrote_has_zeros(store: &dyn Store) {
    let found = statistics(store).await;
    assert_eq!(
        (found.total_entries, found.unique_tags, found.revision),
        (0, 0, 0)
    );
    assert_eq!(threads(store).await.total, 0);
}
behaviour!(an_owner_that_never_wrote_has_zeros(store));
