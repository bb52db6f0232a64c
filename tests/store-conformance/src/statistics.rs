//! Statistics: counts of an owner's entries, images and tags, and the size of the database.

use context_model::{
    ArtifactId, ArtifactPath, ContentTypeCounts, Metadata, NewArtifact, SourceCounts, ThreadSet,
};
use context_store::{ArtifactRestore, OwnerId, Store, StoreStatistics, Usage};
use serde_json::json;

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

/// The size is that of the texts, metadata, tags and images of the entries in these threads. The revision is the owner's.
async fn statistics_of_some_threads_count_only_their_entries(store: &dyn Store) {
    let within = async |patterns: &[&str]| {
        let patterns: Vec<String> = patterns.iter().map(ToString::to_string).collect();
        let threads = ThreadSet::from_shown(&patterns);
        assert!(threads.is_some());
        let found = store.statistics(&me(), threads, now()).await;
        let found = found.expect("the statistics are read");
        assert_eq!(found.total_entries, found.indexed_entries);
        assert_eq!(
            (found.by_source.user, found.by_content_type.text),
            (
                found.total_entries - found.by_source.agent,
                found.total_entries - found.by_content_type.multimodal
            )
        );
        (
            found.total_entries,
            found.by_source.agent,
            found.by_content_type.multimodal,
            found.total_images,
            found.unique_tags,
            found.database_bytes,
            found.revision,
        )
    };
    assert_eq!(within(&["a"]).await, (0, 0, 0, 0, 0, 0, 0));
    entry("ä")
        .thread("a")
        .tags(&["x", "y"])
        .metadata(json!({"k": 1}))
        .store(store, 0)
        .await;
    entry("bc")
        .thread("ab")
        .agent()
        .tags(&["y"])
        .images(&[b"12", b"3"])
        .store(store, 1)
        .await;
    entry("elsewhere")
        .thread("b")
        .tags(&["z"])
        .store(store, 2)
        .await;
    entry("theirs")
        .thread("a")
        .store_for(store, &OwnerId::new("other"), 3)
        .await;
    // A text of 2 bytes, metadata of 7, and tags of 2.
    assert_eq!(within(&["a"]).await, (1, 0, 0, 0, 2, 11, 3));
    // A text of 2 bytes, empty metadata of 2, a tag of 1, and images of 3.
    assert_eq!(within(&["ab"]).await, (1, 1, 1, 2, 1, 8, 3));
    assert_eq!(within(&["a*"]).await, (2, 1, 1, 2, 2, 19, 3));
    assert_eq!(within(&["c", "d*"]).await, (0, 0, 0, 0, 0, 0, 3));
}
behaviour!(statistics_of_some_threads_count_only_their_entries(store));

/// The usage has the bytes of what callers gave, of every version of an artifact.
async fn the_usage_follows_every_operation(store: &dyn Store) {
    let usage = async || store.usage(&me()).await.expect("the usage is read");
    assert_eq!(usage().await, Usage::default());
    let id = entry("ä")
        .metadata(json!({"k": 1}))
        .tags(&["x", "ü"])
        .images(&[b"123"])
        .store(store, 0)
        .await
        .id;
    entry("theirs")
        .tags(&["x"])
        .store_for(store, &OwnerId::new("other"), 0)
        .await;
    let of = |entries, artifacts, bytes| Usage {
        entries,
        artifacts,
        bytes,
    };
    // A text of 2 bytes, metadata of 7, tags of 3, and an image of 3.
    assert_eq!(usage().await, of(1, 0, 15));
    update(id)
        .text("abcd")
        .tags(&["ü"])
        .images(&[])
        .apply(store, 1)
        .await
        .expect("updated");
    assert_eq!(usage().await, of(1, 0, 13));
    let tagged = entry("b").tags(&["ü"]).store(store, 1).await.id;
    // A text of 1 byte, empty metadata of 2, and a tag of 2, which counts once for each entry.
    assert_eq!(usage().await, of(2, 0, 18));
    delete_ids(store, &[tagged]).await;
    let artifact = ArtifactId::parse("00000000-0000-7000-8000-000000000001").expect("an id");
    let new = NewArtifact {
        path: Some(ArtifactPath::from_stored("é/p".to_owned())),
        title: Some("tü".to_owned()),
        content: "content".to_owned(),
        metadata: Metadata::default(),
    };
    let artifacts = store.artifacts();
    let created = artifacts
        .create_artifact(&me(), artifact, new, options(2))
        .await;
    created.expect("created");
    // A title of 3 bytes, a content of 7, empty metadata of 2, and a path of 4.
    assert_eq!(usage().await, of(1, 1, 29));
    let restore = ArtifactRestore {
        id: artifact,
        version: 1,
        expected_version: None,
    };
    let restored = artifacts.restore_artifact(&me(), restore, options(3)).await;
    restored.expect("restored");
    // The path belongs to the artifact, not to its versions.
    assert_eq!(usage().await, of(1, 1, 41));
    let deleted = artifacts.delete_artifact(&me(), artifact, options(4)).await;
    deleted.expect("deleted");
    delete_ids(store, &[id]).await;
    assert_eq!(usage().await, of(0, 0, 0));
}
behaviour!(the_usage_follows_every_operation(store));

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
