//! Content that was changed without the service, and rows from before checksums.

use context_model::{ArtifactId, Filter, Metadata, NewArtifact, Reason};
use context_store::seal::Part;
use context_store::{
    ArtifactPage, ArtifactRestore, ArtifactStore, PageStart, RowSelection, SealStore, Store,
    VersionLookup,
};
use serde_json::json;

use crate::arrange::{
    EVERYTHING, all, delete_ids, entry, get, get_one, me, now, object, options, page, reason,
    revision, update,
};
use crate::suite::{Tamper, behaviour};

async fn stored(store: &dyn Store) -> i64 {
    entry("a text")
        .metadata(json!({"a": 1}))
        .images(&[b"one", b"two"])
        .store(store, 0)
        .await
        .id
}

async fn damage(store: &dyn Store, id: i64) -> Option<Part> {
    get_one(store, id).await.damage
}

fn artifacts(store: &dyn Store) -> &dyn ArtifactStore {
    store.artifacts()
}

async fn artifact(store: &dyn Store) -> ArtifactId {
    let id = ArtifactId::parse("0190163d-8694-739b-aea5-966c26f8ad91").expect("a UUID");
    let new = NewArtifact {
        path: None,
        title: Some("title".to_owned()),
        content: "first".to_owned(),
        metadata: Metadata::from_stored(object(json!({"a": 1}))),
    };
    artifacts(store)
        .create_artifact(&me(), id, new, options(0))
        .await
        .expect("it is created");
    id
}

fn list_page() -> ArtifactPage {
    ArtifactPage {
        limit: 10,
        start: PageStart::Offset(0),
        preview_chars: 201,
        max_bytes: 1 << 20,
    }
}

async fn seal_all(store: &dyn Store) -> u64 {
    let seals: &dyn SealStore = store.seals();
    let (mut after, mut sealed) = (None, 0);
    loop {
        let found = seals.seal(after.as_ref()).await.expect("rows are sealed");
        sealed += found.sealed;
        after = found.next;
        if after.is_none() {
            return sealed;
        }
    }
}

/// Only the changed entry is damaged, whichever of its parts was changed.
async fn changed_content_of_an_entry_is_damage_and_names_its_part(
    store: &dyn Store,
    tamper: &dyn Tamper,
) {
    let changes = [
        (
            "UPDATE entries SET text = 'A text' WHERE id = {id}",
            Part::Text,
        ),
        (
            "UPDATE entries SET metadata = '{\"a\":2}' WHERE id = {id}",
            Part::Metadata,
        ),
        (
            "UPDATE entries SET version = 0 WHERE id = {id}",
            Part::Checksum,
        ),
        (
            "UPDATE images SET data = seal WHERE position = 1",
            Part::Images,
        ),
        (
            "UPDATE images SET mime_type = 'image/gif' WHERE position = 0",
            Part::Images,
        ),
        ("DELETE FROM images WHERE position = 1", Part::Images),
    ];
    for (change, part) in changes {
        let (id, other) = (
            stored(store).await,
            entry("another").store(store, 1).await.id,
        );
        assert_eq!(
            (damage(store, id).await, damage(store, other).await),
            (None, None),
            "{change}"
        );
        tamper
            .execute(&change.replace("{id}", &id.to_string()))
            .await;
        assert_eq!(
            (damage(store, id).await, damage(store, other).await),
            (Some(part), None),
            "{change}"
        );
        let found = all(store).await;
        assert_eq!(
            found
                .iter()
                .filter_map(|entry| entry.damage.map(|part| (entry.id, part)))
                .collect::<Vec<_>>(),
            [(id, part)],
            "{change}"
        );
        assert_eq!(
            delete_ids(store, &[id, other]).await,
            2,
            "{change}: what is damaged can be deleted"
        );
    }
}
behaviour!(changed_content_of_an_entry_is_damage_and_names_its_part(
    store, tamper
));

/// Reading a part of a text cannot show damage. Reading the whole text does, whichever request read it.
async fn a_text_is_checked_when_it_was_read_whole(store: &dyn Store, tamper: &dyn Tamper) {
    let id = stored(store).await;
    tamper
        .execute(&format!(
            "UPDATE entries SET text = 'A text' WHERE id = {id}"
        ))
        .await;
    for (text_chars, expected) in [
        (Some(6), None),
        (Some(7), Some(Part::Text)),
        (None, Some(Part::Text)),
    ] {
        let selection = RowSelection {
            text_chars,
            images: false,
            ..EVERYTHING
        };
        let found = store
            .search_contexts(&me(), Filter::default(), page(10, 0), selection, now())
            .await
            .expect("it is found");
        assert_eq!(found.entries[0].damage, expected, "{text_chars:?}");
    }
}
behaviour!(a_text_is_checked_when_it_was_read_whole(store, tamper));

/// An update computes checksums for what it writes, but never for content that was already damaged.
async fn an_update_does_not_hide_damage(store: &dyn Store, tamper: &dyn Tamper) {
    let id = stored(store).await;
    tamper
        .execute(&format!(
            "UPDATE entries SET text = 'A text' WHERE id = {id}"
        ))
        .await;
    update(id)
        .metadata(json!({"b": 1}))
        .apply(store, 1)
        .await
        .expect("the metadata is replaced");
    assert_eq!(damage(store, id).await, Some(Part::Text));
    update(id)
        .text("another text")
        .apply(store, 2)
        .await
        .expect("the text is replaced");
    assert_eq!(damage(store, id).await, None);
    tamper
        .execute(&format!(
            "UPDATE entries SET metadata = '{{\"b\":2}}' WHERE id = {id}"
        ))
        .await;
    let patched = update(id).patch(json!({"c": 1})).apply(store, 3).await;
    assert_eq!(
        reason(patched),
        Reason::StorageCorrupt,
        "damaged metadata is not merged"
    );
    update(id)
        .metadata(json!({"c": 1}))
        .images(&[b"three"])
        .apply(store, 4)
        .await
        .expect("the metadata is replaced");
    assert_eq!(damage(store, id).await, None);
}
behaviour!(an_update_does_not_hide_damage(store, tamper));

/// A service from before checksums changes text and version, but not the checksums.
async fn what_an_older_service_updated_is_unchecked_and_sealed_again(
    store: &dyn Store,
    tamper: &dyn Tamper,
) {
    let id = stored(store).await;
    tamper
        .execute(&format!(
            "UPDATE entries SET text = 'its text', version = version + 1 WHERE id = {id}"
        ))
        .await;
    assert_eq!(damage(store, id).await, None);
    update(id)
        .metadata(json!({"b": 1}))
        .apply(store, 1)
        .await
        .expect("it is updated");
    tamper
        .execute(&format!(
            "UPDATE entries SET text = 'My text' WHERE id = {id}"
        ))
        .await;
    assert_eq!(
        damage(store, id).await,
        Some(Part::Text),
        "the update sealed the text that it found"
    );
}
behaviour!(what_an_older_service_updated_is_unchecked_and_sealed_again(
    store, tamper
));

/// Rows from before checksums get them without any visible effect.
async fn rows_without_checksums_are_sealed_in_the_background(
    store: &dyn Store,
    tamper: &dyn Tamper,
) {
    let (id, artifact) = (stored(store).await, artifact(store).await);
    for table in ["entries", "images", "artifact_versions"] {
        tamper
            .execute(&format!("UPDATE {table} SET seal = NULL"))
            .await;
    }
    let (before, at_revision) = (get(store, &[id]).await, revision(store).await);
    assert_eq!(before[0].damage, None);
    assert_eq!(
        seal_all(store).await,
        4,
        "an entry, two images and a version"
    );
    assert_eq!(
        (get(store, &[id]).await, revision(store).await),
        (before, at_revision),
        "nothing else changed"
    );
    assert_eq!(seal_all(store).await, 0);
    tamper.execute("UPDATE entries SET text = 'A text'").await;
    tamper
        .execute("UPDATE artifact_versions SET content = 'First'")
        .await;
    assert_eq!(damage(store, id).await, Some(Part::Text));
    let found = artifacts(store).get_artifact(&me(), artifact, now()).await;
    assert_eq!(reason(found), Reason::StorageCorrupt);
}
behaviour!(rows_without_checksums_are_sealed_in_the_background(
    store, tamper
));

/// Sealing skips damaged rows. PostgreSQL also reads rows with the checksums of an earlier version, and must recognise
/// those of another entry.
async fn sealing_does_not_hide_damage(store: &dyn Store, tamper: &dyn Tamper) {
    let id = stored(store).await;
    let other = entry("another").store(store, 1).await.id;
    tamper.execute("UPDATE images SET seal = NULL").await;
    tamper
        .execute(&format!(
            "UPDATE entries SET text = 'A text', version = 0 WHERE id = {id}"
        ))
        .await;
    tamper
        .execute(&format!(
            "UPDATE entries SET text = 'Another', version = 2, \
             seal = (SELECT e.seal FROM entries AS e WHERE e.id = {id}) WHERE id = {other}"
        ))
        .await;
    let damaged = (Some(Part::Checksum), Some(Part::Checksum));
    assert_eq!(
        (damage(store, id).await, damage(store, other).await),
        damaged
    );
    assert_eq!(seal_all(store).await, 2, "the two images");
    assert_eq!(
        (damage(store, id).await, damage(store, other).await),
        damaged
    );
}
behaviour!(sealing_does_not_hide_damage(store, tamper));

/// Only the damaged version of an artifact is rejected. It can be replaced by an earlier one, or deleted.
async fn a_changed_version_of_an_artifact_is_refused_alone(store: &dyn Store, tamper: &dyn Tamper) {
    let id = artifact(store).await;
    let store_of = artifacts(store);
    let restore = ArtifactRestore {
        id,
        version: 1,
        expected_version: None,
    };
    store_of
        .restore_artifact(&me(), restore.clone(), options(1))
        .await
        .expect("a second version");
    for change in [
        "content = 'Second'",
        "title = 'Title'",
        "metadata = '{\"a\":2}'",
    ] {
        let version = store_of
            .get_artifact(&me(), id, now())
            .await
            .expect("it is sound")
            .value
            .expect("it exists")
            .version;
        tamper
            .execute(&format!(
                "UPDATE artifact_versions SET {change} WHERE version = {version}"
            ))
            .await;
        assert_eq!(
            reason(store_of.get_artifact(&me(), id, now()).await),
            Reason::StorageCorrupt,
            "{change}"
        );
        let versions = store_of
            .artifact_versions(&me(), id, vec![Some(1), Some(version)], now())
            .await;
        assert_eq!(reason(versions), Reason::StorageCorrupt, "{change}");
        let listed = store_of
            .list_artifacts(
                &me(),
                context_store::ArtifactSelection::default(),
                list_page(),
                now(),
            )
            .await
            .expect("the list is read")
            .artifacts;
        assert_eq!(listed[0].damaged_version, Some(version), "{change}");
        let restored = store_of
            .restore_artifact(
                &me(),
                ArtifactRestore {
                    version,
                    ..restore.clone()
                },
                options(2),
            )
            .await;
        assert_eq!(reason(restored), Reason::StorageCorrupt, "{change}");
        let first = store_of
            .artifact_versions(&me(), id, vec![Some(1)], now())
            .await
            .expect("the first version is sound")
            .value;
        assert!(matches!(first, VersionLookup::Artifact { .. }), "{change}");
        let restored = store_of
            .restore_artifact(&me(), restore.clone(), options(3))
            .await
            .expect("the first version is restored");
        assert_eq!(
            (restored.outcome.content.as_str(), restored.outcome.version),
            ("first", version + 1),
            "{change}"
        );
    }
    tamper
        .execute("UPDATE artifact_versions SET content = 'spoilt'")
        .await;
    store_of
        .delete_artifact(&me(), id, options(4))
        .await
        .expect("what is damaged can be deleted");
    assert_eq!(
        store_of
            .get_artifact(&me(), id, now())
            .await
            .expect("it is gone")
            .value,
        None
    );
}
behaviour!(a_changed_version_of_an_artifact_is_refused_alone(
    store, tamper
));
