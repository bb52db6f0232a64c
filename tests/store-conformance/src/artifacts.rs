//! Artifacts keep every version.

use context_model::{
    ArtifactId, ArtifactUpdate, ContentChange, Edit, Metadata, NewArtifact, Reason, TitleChange,
    Violations,
};
use context_store::{
    ArtifactPage, ArtifactRestore, ArtifactSelection, ArtifactStore, OwnerId, PageStart, Store,
    StoreError, StoredArtifact, StoredVersion, VersionLookup, Written,
};
use serde_json::{Value, json};

use crate::arrange::*;
use crate::suite::behaviour;

fn artifacts(store: &dyn Store) -> &dyn ArtifactStore {
    store.artifacts()
}

fn id(number: u32) -> ArtifactId {
    ArtifactId::parse(&format!("00000000-0000-7000-8000-{number:012}")).expect("an id")
}

fn metadata(value: Value) -> Metadata {
    Metadata::from_stored(object(value))
}

async fn create(store: &dyn Store, number: u32, content: &str, seconds: i64) -> StoredArtifact {
    create_for(store, &me(), number, content, seconds).await
}

async fn create_for(
    store: &dyn Store,
    owner: &OwnerId,
    number: u32,
    content: &str,
    seconds: i64,
) -> StoredArtifact {
    let new = NewArtifact {
        path: None,
        title: None,
        content: content.to_owned(),
        metadata: Metadata::default(),
    };
    artifacts(store)
        .create_artifact(owner, id(number), new, options(seconds))
        .await
        .expect("created")
        .outcome
}

fn unchanged(number: u32) -> ArtifactUpdate {
    ArtifactUpdate {
        path: None,
        id: id(number),
        title: None,
        content: None,
        metadata: None,
        expected_version: None,
    }
}

fn content(number: u32, text: &str) -> ArtifactUpdate {
    ArtifactUpdate {
        content: Some(ContentChange::Replace(text.to_owned())),
        ..unchanged(number)
    }
}

fn title(number: u32, title: &str) -> ArtifactUpdate {
    ArtifactUpdate {
        title: Some(TitleChange::parse(title, &mut Violations::default())),
        ..unchanged(number)
    }
}

async fn change(
    store: &dyn Store,
    update: ArtifactUpdate,
    seconds: i64,
) -> Result<Written<StoredArtifact>, StoreError> {
    artifacts(store)
        .update_artifact(&me(), update, options(seconds))
        .await
}

async fn fetch(store: &dyn Store, number: u32) -> Option<StoredArtifact> {
    artifacts(store)
        .get_artifact(&me(), id(number), now())
        .await
        .expect("read")
        .value
}

async fn restore(
    store: &dyn Store,
    number: u32,
    version: i64,
    seconds: i64,
) -> Result<Written<StoredArtifact>, StoreError> {
    let restore = ArtifactRestore {
        id: id(number),
        version,
        expected_version: None,
    };
    artifacts(store)
        .restore_artifact(&me(), restore, options(seconds))
        .await
}

async fn versions(
    store: &dyn Store,
    number: u32,
    numbers: &[Option<i64>],
) -> Vec<Option<StoredVersion>> {
    match artifacts(store)
        .artifact_versions(&me(), id(number), numbers.to_vec(), now())
        .await
        .expect("read")
        .value
    {
        VersionLookup::Artifact { versions, .. } => versions,
        VersionLookup::NoArtifact => panic!("artifact {number} exists"),
    }
}

/// Artifacts whose title or content contains this text.
fn holding(substring: &str) -> ArtifactSelection {
    ArtifactSelection {
        substring: Some(substring.to_owned()),
        ..ArtifactSelection::default()
    }
}

fn first(limit: u32) -> ArtifactPage {
    ArtifactPage {
        limit,
        start: PageStart::Offset(0),
        preview_chars: 5,
        max_bytes: 1 << 30,
    }
}

async fn titles(store: &dyn Store, page: ArtifactPage) -> Vec<String> {
    let found = artifacts(store)
        .list_artifacts(&me(), ArtifactSelection::default(), page, now())
        .await
        .expect("listed");
    found
        .artifacts
        .into_iter()
        .map(|artifact| artifact.title)
        .collect()
}

async fn search(store: &dyn Store, query: &str) -> Vec<String> {
    let found = artifacts(store)
        .list_artifacts(&me(), holding(query), first(50), now())
        .await
        .expect("searched");
    found
        .artifacts
        .into_iter()
        .map(|artifact| artifact.title)
        .collect()
}

/// Every field keeps its value and its type.
async fn a_created_artifact_reads_back_equal(store: &dyn Store) {
    let new = NewArtifact {
        path: None,
        title: Some("Ä title".to_owned()),
        content: "# Ünï\r\n\u{1f600}\n".to_owned(),
        metadata: metadata(rich_metadata()),
    };
    let written = artifacts(store)
        .create_artifact(&me(), id(1), new, options(3))
        .await
        .expect("created");
    assert_eq!(written.revision, 1);
    let created = written.outcome;
    assert_eq!(
        (
            created.title.as_str(),
            created.content.as_str(),
            created.version
        ),
        ("Ä title", "# Ünï\r\n\u{1f600}\n", 1)
    );
    assert_eq!(
        (
            created.metadata.clone(),
            created.created_at,
            created.updated_at
        ),
        (object(rich_metadata()), at(3), at(3))
    );
    assert_eq!(fetch(store, 1).await, Some(created));
    assert_eq!(fetch(store, 2).await, None);
}
behaviour!(a_created_artifact_reads_back_equal(store));

/// The title follows the content until a caller sets one.
async fn each_change_of_an_artifact_makes_a_version(store: &dyn Store) {
    create(store, 1, "# One\ntext", 0).await;
    let second = change(store, content(1, "# Two\ntext"), 1)
        .await
        .expect("updated");
    assert_eq!(
        (
            second.outcome.title.as_str(),
            second.outcome.version,
            second.revision
        ),
        ("Two", 2, 2)
    );
    change(store, title(1, " Mine "), 2).await.expect("updated");
    let with_metadata = ArtifactUpdate {
        metadata: Some(metadata(json!({"k": 1}))),
        ..content(1, "# Four")
    };
    let fourth = change(store, with_metadata, 3)
        .await
        .expect("updated")
        .outcome;
    assert_eq!(
        (
            fourth.title.as_str(),
            fourth.version,
            fourth.created_at,
            fourth.updated_at
        ),
        ("Mine", 4, at(0), at(3))
    );
    assert_eq!(fetch(store, 1).await, Some(fourth));

    let history = artifacts(store)
        .artifact_history(&me(), id(1), 50, now())
        .await
        .expect("read")
        .value
        .expect("it exists");
    assert_eq!(history.current_version, 4);
    let earlier: Vec<_> = history
        .earlier
        .iter()
        .map(|v| (v.version, v.title.as_str(), v.at, v.changes.join(",")))
        .collect();
    assert_eq!(
        earlier,
        [
            (3, "Mine", at(2), "title".to_owned()),
            (2, "Two", at(1), "title,content".to_owned()),
            (1, "One", at(0), String::new())
        ]
    );
    let short = artifacts(store)
        .artifact_history(&me(), id(1), 2, now())
        .await
        .expect("read")
        .value
        .expect("it exists");
    assert_eq!(
        short.earlier.iter().map(|v| v.version).collect::<Vec<_>>(),
        [3, 2]
    );
}
behaviour!(each_change_of_an_artifact_makes_a_version(store));

/// Equal values are no change. Confirming the title is no change either, but fixes the title from then on.
async fn an_update_that_changes_nothing_makes_no_version(store: &dyn Store) {
    let created = create(store, 1, "# One", 0).await;
    for update in [
        content(1, "# One"),
        title(1, "One"),
        ArtifactUpdate {
            metadata: Some(Metadata::default()),
            ..unchanged(1)
        },
    ] {
        let written = change(store, update, 1).await.expect("accepted");
        let created = StoredArtifact {
            // A title that was given no longer follows the content. That alone makes no version.
            title_given: written.outcome.title_given,
            ..created.clone()
        };
        assert_eq!((written.outcome, written.revision), (created, 1));
    }
    let second = change(store, content(1, "# Two"), 2)
        .await
        .expect("updated")
        .outcome;
    assert_eq!(second.title, "One", "the title was confirmed");
}
behaviour!(an_update_that_changes_nothing_makes_no_version(store));

/// The current version can also be read by its number.
async fn every_version_can_be_read_by_its_number(store: &dyn Store) {
    create(store, 1, "# One", 0).await;
    change(store, content(1, "# Two"), 1)
        .await
        .expect("updated");
    let found = versions(
        store,
        1,
        &[Some(1), None, Some(2), Some(3), Some(0), Some(i64::MAX)],
    )
    .await;
    let contents: Vec<_> = found
        .iter()
        .map(|v| {
            v.as_ref()
                .map(|v| (v.version, v.content.as_str(), v.title.as_str(), v.at))
        })
        .collect();
    let (one, two) = (
        Some((1, "# One", "One", at(0))),
        Some((2, "# Two", "Two", at(1))),
    );
    assert_eq!(contents, [one, two, two, None, None, None]);
    let nothing = artifacts(store)
        .artifact_versions(&me(), id(9), vec![None], now())
        .await
        .expect("read");
    assert_eq!(nothing.value, VersionLookup::NoArtifact);
}
behaviour!(every_version_can_be_read_by_its_number(store));

/// Title, content and metadata are restored, and no version is lost.
async fn a_restore_makes_a_new_version(store: &dyn Store) {
    create(store, 1, "# One", 0).await;
    let update = ArtifactUpdate {
        metadata: Some(metadata(json!({"k": 1}))),
        ..content(1, "# Two")
    };
    change(store, update, 1).await.expect("updated");
    let restored = restore(store, 1, 1, 2).await.expect("restored");
    let artifact = restored.outcome;
    assert_eq!(
        (
            artifact.version,
            artifact.title.as_str(),
            artifact.content.as_str(),
            restored.revision
        ),
        (3, "One", "# One", 3)
    );
    assert!(artifact.metadata.is_empty());
    assert_eq!(
        restore(store, 1, 3, 3)
            .await
            .expect("the current version can be restored too")
            .outcome
            .version,
        4
    );
    let history = artifacts(store)
        .artifact_history(&me(), id(1), 50, now())
        .await
        .expect("read")
        .value
        .expect("it exists");
    let changes: Vec<_> = history
        .earlier
        .iter()
        .map(|v| v.changes.join(","))
        .collect();
    assert_eq!(
        changes,
        ["title,content,metadata", "title,content,metadata", ""]
    );
    assert_eq!(
        reason(restore(store, 1, 9, 4).await),
        Reason::ArtifactVersionNotFound
    );
    assert_eq!(
        reason(restore(store, 9, 1, 4).await),
        Reason::ArtifactNotFound
    );
    let stale = ArtifactRestore {
        id: id(1),
        version: 1,
        expected_version: Some(3),
    };
    assert_eq!(
        reason(
            artifacts(store)
                .restore_artifact(&me(), stale, options(5))
                .await
        ),
        Reason::VersionMismatch
    );
    // A restored generated title follows the content again.
    assert_eq!(
        change(store, content(1, "# Five"), 6)
            .await
            .expect("updated")
            .outcome
            .title,
        "Five"
    );
}
behaviour!(a_restore_makes_a_new_version(store));

/// Each edit must match exactly one place. An edit that does not match changes nothing.
async fn edits_change_places_of_the_stored_content(store: &dyn Store) {
    create(store, 1, "# One\nold line\nlast", 0).await;
    let replace = Edit::Replace {
        old: "old".to_owned(),
        new: "new".to_owned(),
    };
    let insert = Edit::Insert {
        after_line: 1,
        text: "inserted".to_owned(),
    };
    let edits = |edits| ArtifactUpdate {
        content: Some(ContentChange::Edits(edits)),
        ..unchanged(1)
    };
    let edited = change(store, edits(vec![replace.clone(), insert]), 1)
        .await
        .expect("edited")
        .outcome;
    assert_eq!(
        (edited.content.as_str(), edited.version),
        ("# One\ninserted\nnew line\nlast", 2)
    );
    assert_eq!(
        reason(change(store, edits(vec![replace]), 2).await),
        Reason::InvalidArgument
    );
    assert_eq!(fetch(store, 1).await, Some(edited));
}
behaviour!(edits_change_places_of_the_stored_content(store));

/// When the artifact has changed meanwhile, nothing is written.
async fn a_stale_artifact_version_changes_nothing(store: &dyn Store) {
    create(store, 1, "# One", 0).await;
    change(store, content(1, "# Two"), 1)
        .await
        .expect("updated");
    let before = fetch(store, 1).await;
    for stale in [1, 3, 0, -1] {
        let update = ArtifactUpdate {
            expected_version: Some(stale),
            ..content(1, "# Three")
        };
        assert_eq!(
            reason(change(store, update, 2).await),
            Reason::VersionMismatch,
            "{stale}"
        );
    }
    assert_eq!(fetch(store, 1).await, before);
    let update = ArtifactUpdate {
        expected_version: Some(2),
        ..content(1, "# Three")
    };
    assert_eq!(
        change(store, update, 2)
            .await
            .expect("accepted")
            .outcome
            .version,
        3
    );
    assert_eq!(
        reason(change(store, content(9, "x"), 3).await),
        Reason::ArtifactNotFound
    );
}
behaviour!(a_stale_artifact_version_changes_nothing(store));

/// Times of versions grow even if the clock stands still or goes back.
async fn times_of_versions_grow(store: &dyn Store) {
    let mut last = create(store, 1, "0", 5).await.updated_at;
    for (i, seconds) in [5, 5, 1].into_iter().enumerate() {
        let written = change(store, content(1, &(i + 1).to_string()), seconds)
            .await
            .expect("updated");
        assert!(written.outcome.updated_at > last);
        last = written.outcome.updated_at;
    }
    assert_eq!(fetch(store, 1).await.expect("it exists").created_at, at(5));
}
behaviour!(times_of_versions_grow(store));

/// All versions are deleted. The id is then unknown.
async fn a_deleted_artifact_is_gone(store: &dyn Store) {
    create(store, 1, "# One", 0).await;
    change(store, content(1, "# Two"), 1)
        .await
        .expect("updated");
    let deleted = artifacts(store)
        .delete_artifact(&me(), id(1), options(2))
        .await
        .expect("deleted");
    assert_eq!(deleted.revision, 3);
    assert_eq!(fetch(store, 1).await, None);
    assert!(search(store, "one").await.is_empty() && search(store, "two").await.is_empty());
    assert!(titles(store, first(50)).await.is_empty());
    assert_eq!(
        reason(
            artifacts(store)
                .delete_artifact(&me(), id(1), options(3))
                .await
        ),
        Reason::ArtifactNotFound
    );
    assert_eq!(revision(store).await, 3);
}
behaviour!(a_deleted_artifact_is_gone(store));

/// Artifacts are ordered by time, then by id. A page after a cursor neither repeats nor skips artifacts. A page at an
/// offset may.
async fn artifacts_are_listed_newest_first(store: &dyn Store) {
    for (number, seconds) in [(1, 0), (3, 1), (2, 1), (4, 2), (5, 2)] {
        create(store, number, &format!("{number} and a text"), seconds).await;
    }
    let order = |numbers: &[u32]| {
        numbers
            .iter()
            .map(|number| format!("{number} and a text"))
            .collect::<Vec<_>>()
    };
    assert_eq!(titles(store, first(50)).await, order(&[5, 4, 3, 2, 1]));
    assert_eq!(
        titles(
            store,
            ArtifactPage {
                start: PageStart::Offset(2),
                ..first(2)
            }
        )
        .await,
        order(&[3, 2])
    );
    let found = artifacts(store)
        .list_artifacts(&me(), ArtifactSelection::default(), first(2), now())
        .await
        .expect("listed");
    assert_eq!(
        (
            found.total,
            found.revision,
            found.artifacts[0].preview.as_str()
        ),
        (5, 5, "5 and")
    );
    let last = &found.artifacts[1];
    let start = PageStart::After {
        created_at: last.created_at,
        id: last.id,
    };
    create(store, 6, "6 and a text", 9).await;
    artifacts(store)
        .delete_artifact(&me(), id(4), options(9))
        .await
        .expect("deleted");
    assert_eq!(
        titles(store, ArtifactPage { start, ..first(50) }).await,
        order(&[3, 2, 1])
    );
}
behaviour!(artifacts_are_listed_newest_first(store));

/// A single artifact is returned whatever the limit.
async fn a_page_of_artifacts_over_its_bytes_is_refused(store: &dyn Store) {
    for number in [1, 2] {
        let new = NewArtifact {
            path: None,
            title: None,
            content: "x".to_owned(),
            metadata: metadata(json!({"k": "x".repeat(1000)})),
        };
        artifacts(store)
            .create_artifact(&me(), id(number), new, options(0))
            .await
            .expect("created");
    }
    let page = |limit| ArtifactPage {
        max_bytes: 1500,
        ..first(limit)
    };
    assert_eq!(titles(store, page(1)).await.len(), 1);
    assert_eq!(
        reason(
            artifacts(store)
                .list_artifacts(&me(), ArtifactSelection::default(), page(2), now())
                .await
        ),
        Reason::ResultTooLarge
    );
}
behaviour!(a_page_of_artifacts_over_its_bytes_is_refused(store));

/// Search works in any script and ignores case. `%`, `_`, quotes and operators are literal.
async fn a_search_finds_parts_of_title_and_content(store: &dyn Store) {
    create(store, 1, "# Größe\n100% sure", 0).await;
    create(store, 2, "# snake_case\n\"quoted\" AND more\\", 1).await;
    let new = NewArtifact {
        path: None,
        title: Some("ÄRGER 日本".to_owned()),
        content: "plain".to_owned(),
        metadata: Metadata::default(),
    };
    artifacts(store)
        .create_artifact(&me(), id(3), new, options(2))
        .await
        .expect("created");
    for (query, expected) in [
        ("GRÖSSE", vec![]),
        ("gRÖße", vec!["Größe"]),
        ("0%", vec!["Größe"]),
        ("%", vec!["Größe"]),
        ("_", vec!["snake_case"]),
        ("\"QUOTED\" and", vec!["snake_case"]),
        ("more\\", vec!["snake_case"]),
        ("ärg", vec!["ÄRGER 日本"]),
        ("本", vec!["ÄRGER 日本"]),
        ("n", vec!["ÄRGER 日本", "snake_case"]),
        ("nothing", vec![]),
    ] {
        assert_eq!(search(store, query).await, expected, "{query}");
    }
    change(store, content(1, "# Other\nwords"), 3)
        .await
        .expect("updated");
    assert!(
        search(store, "größe").await.is_empty(),
        "only the current version is searched"
    );
    assert_eq!(search(store, "WORDS").await, ["Other"]);
}
behaviour!(a_search_finds_parts_of_title_and_content(store));

/// An owner can neither read, change, count nor find another owner's artifacts.
async fn owners_do_not_see_each_others_artifacts(store: &dyn Store) {
    let theirs = OwnerId::new("other");
    create_for(store, &theirs, 1, "# Secret", 0).await;
    let store_of = artifacts(store);
    assert_eq!(fetch(store, 1).await, None);
    assert_eq!(
        reason(change(store, content(1, "x"), 1).await),
        Reason::ArtifactNotFound
    );
    assert_eq!(
        reason(restore(store, 1, 1, 1).await),
        Reason::ArtifactNotFound
    );
    assert_eq!(
        reason(store_of.delete_artifact(&me(), id(1), options(1)).await),
        Reason::ArtifactNotFound
    );
    let history = store_of
        .artifact_history(&me(), id(1), 10, now())
        .await
        .expect("read");
    assert!(history.value.is_none());
    let versions = store_of
        .artifact_versions(&me(), id(1), vec![None, Some(1)], now())
        .await
        .expect("read");
    assert_eq!(versions.value, VersionLookup::NoArtifact);
    create(store, 1, "# Mine", 1).await;
    let found = store_of
        .list_artifacts(&me(), ArtifactSelection::default(), first(50), now())
        .await
        .expect("listed");
    assert_eq!((found.total, found.artifacts.len()), (1, 1));
    assert!(search(store, "secret").await.is_empty());
    let seen = store_of
        .get_artifact(&theirs, id(1), now())
        .await
        .expect("read")
        .value
        .expect("theirs");
    assert_eq!((seen.title.as_str(), seen.version), ("Secret", 1));
}
behaviour!(owners_do_not_see_each_others_artifacts(store));

/// The first outcome is returned unchanged until the artifact is deleted.
async fn a_repeated_artifact_request_gets_the_first_outcome(store: &dyn Store) {
    let store_of = artifacts(store);
    let new = || NewArtifact {
        path: None,
        title: None,
        content: "# One".to_owned(),
        metadata: Metadata::default(),
    };
    let created = store_of
        .create_artifact(&me(), id(1), new(), with_key(0, "k1", 1))
        .await
        .expect("created");
    assert_eq!(
        store_of
            .create_artifact(&me(), id(2), new(), with_key(1, "k1", 1))
            .await
            .expect("repeated"),
        created
    );
    let updated = store_of
        .update_artifact(&me(), content(1, "# Two"), with_key(2, "k2", 2))
        .await
        .expect("updated");
    change(store, content(1, "# Three"), 3)
        .await
        .expect("updated");
    assert_eq!(
        store_of
            .update_artifact(&me(), content(1, "# Two"), with_key(4, "k2", 2))
            .await
            .expect("repeated"),
        updated
    );
    let earliest = || ArtifactRestore {
        id: id(1),
        version: 1,
        expected_version: None,
    };
    let restored = store_of
        .restore_artifact(&me(), earliest(), with_key(4, "k4", 4))
        .await
        .expect("restored");
    assert_eq!(
        store_of
            .restore_artifact(&me(), earliest(), with_key(5, "k4", 4))
            .await
            .expect("repeated"),
        restored
    );
    assert_eq!(fetch(store, 1).await.expect("it exists").version, 4);
    assert_eq!(fetch(store, 2).await, None);
    let deleted = store_of
        .delete_artifact(&me(), id(1), with_key(5, "k3", 3))
        .await
        .expect("deleted");
    assert_eq!(
        store_of
            .delete_artifact(&me(), id(1), with_key(6, "k3", 3))
            .await
            .expect("repeated"),
        deleted
    );
    let gone = store_of
        .update_artifact(&me(), content(1, "# Two"), with_key(7, "k2", 2))
        .await;
    assert_eq!(reason(gone), Reason::ArtifactNotFound);
}
behaviour!(a_repeated_artifact_request_gets_the_first_outcome(store));
