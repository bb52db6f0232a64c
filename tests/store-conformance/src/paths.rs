//! Paths of artifacts.

use context_model::{
    ArtifactId, ArtifactPath, ArtifactUpdate, ContentChange, Metadata, NewArtifact, PathChange,
    Reason, Violations,
};
use context_store::{
    ArtifactPage, ArtifactSelection, Embedding, OwnerId, PageStart, Store, StoreError,
    StoredArtifact, WriteOptions, Written,
};
use context_test_support::Random;

use crate::arrange::*;
use crate::suite::behaviour;
use crate::vectors::ready;

fn id(number: u32) -> ArtifactId {
    ArtifactId::parse(&format!("00000000-0000-7000-8000-{number:012}")).expect("an id")
}

fn path(path: &str) -> ArtifactPath {
    ArtifactPath::parse(path.to_owned(), "path", &mut Violations::default()).expect("a path")
}

async fn create_for(
    store: &dyn Store,
    owner: &OwnerId,
    number: u32,
    at: Option<&str>,
) -> Result<Written<StoredArtifact>, StoreError> {
    let new = NewArtifact {
        path: at.map(path),
        title: None,
        content: format!("# Artifact {number}"),
        metadata: Metadata::default(),
    };
    let options = WriteOptions {
        embeddings: vec![Embedding::Later],
        ..options(i64::from(number))
    };
    store
        .artifacts()
        .create_artifact(owner, id(number), new, options)
        .await
}

async fn create(store: &dyn Store, number: u32, at: Option<&str>) -> StoredArtifact {
    let created = create_for(store, &me(), number, at).await;
    created.expect("created").outcome
}

async fn change(
    store: &dyn Store,
    number: u32,
    to: PathChange,
    content: Option<&str>,
) -> Result<Written<StoredArtifact>, StoreError> {
    let update = ArtifactUpdate {
        id: id(number),
        path: Some(to),
        title: None,
        content: content.map(|content| ContentChange::Replace(content.to_owned())),
        metadata: None,
        expected_version: None,
    };
    store
        .artifacts()
        .update_artifact(&me(), update, options(50))
        .await
}

async fn at_path(store: &dyn Store, owner: &OwnerId, at: &str) -> Option<ArtifactId> {
    let found = store.artifacts().artifact_at(owner, path(at), now()).await;
    found.expect("read").value
}

/// The paths that begin with this, newest first, and how many there are.
async fn beginning_with(store: &dyn Store, prefix: &str, limit: u32) -> (Vec<String>, i64) {
    let selection = ArtifactSelection {
        path_prefix: Some(prefix.to_owned()),
        ..ArtifactSelection::default()
    };
    let page = ArtifactPage {
        limit,
        start: PageStart::Offset(0),
        preview_chars: 5,
        max_bytes: 1 << 30,
    };
    let listed = store
        .artifacts()
        .list_artifacts(&me(), selection, page, now())
        .await
        .expect("listed");
    let paths = listed.artifacts.into_iter().map(|artifact| artifact.path);
    (
        paths.map(|path| path.expect("a path")).collect(),
        listed.total,
    )
}

async fn a_path_belongs_to_one_artifact_of_an_owner(store: &dyn Store) {
    let created = create(store, 1, Some("/memories/a.md")).await;
    assert_eq!(created.path.as_deref(), Some("/memories/a.md"));
    assert_eq!(create(store, 2, None).await.path, None);
    let taken = create_for(store, &me(), 3, Some("/memories/a.md")).await;
    assert_eq!(reason(taken), Reason::PathTaken);
    let set = |at: &str| PathChange::Set(path(at));
    assert_eq!(
        reason(change(store, 2, set("/memories/a.md"), Some("# New")).await),
        Reason::PathTaken
    );
    let unchanged = store.artifacts().get_artifact(&me(), id(2), now()).await;
    assert_eq!(
        unchanged.expect("read").value.expect("it exists").version,
        1
    );
    // Paths are compared exactly, and each owner has its own.
    create(store, 4, Some("/memories/A.md")).await;
    let other = OwnerId::new("other");
    let theirs = create_for(store, &other, 5, Some("/memories/a.md")).await;
    theirs.expect("created");
    assert_eq!(at_path(store, &me(), "/memories/a.md").await, Some(id(1)));
    assert_eq!(at_path(store, &other, "/memories/a.md").await, Some(id(5)));
    assert_eq!(at_path(store, &me(), "/memories").await, None);
}
behaviour!(a_path_belongs_to_one_artifact_of_an_owner(store));

async fn a_rename_makes_a_change_and_no_version(store: &dyn Store) {
    create(store, 1, Some("/a")).await;
    let set = |at: &str| PathChange::Set(path(at));
    let renamed = change(store, 1, set("/b"), None).await.expect("renamed");
    assert_eq!((renamed.outcome.version, renamed.revision), (1, 2));
    assert_eq!(renamed.outcome.path.as_deref(), Some("/b"));
    assert_eq!(at_path(store, &me(), "/a").await, None);
    let again = change(store, 1, set("/b"), None).await.expect("accepted");
    assert_eq!(again.revision, 2, "the path was the same");
    let both = change(store, 1, set("/c"), Some("# Two")).await;
    let both = both.expect("updated");
    assert_eq!((both.outcome.version, both.revision), (2, 3));
    assert_eq!(at_path(store, &me(), "/c").await, Some(id(1)));
    let removed = change(store, 1, PathChange::Remove, None).await;
    assert_eq!(removed.expect("removed").outcome.path, None);
    assert_eq!(at_path(store, &me(), "/c").await, None);
    create(store, 2, Some("/c")).await;
}
behaviour!(a_rename_makes_a_change_and_no_version(store));

async fn a_deleted_artifact_leaves_its_path_free(store: &dyn Store) {
    ready(store).await;
    create(store, 1, Some("/a")).await;
    let deleted = store
        .artifacts()
        .delete_artifact(&me(), id(1), options(9))
        .await;
    deleted.expect("deleted");
    assert_eq!(at_path(store, &me(), "/a").await, None);
    create(store, 2, Some("/a")).await;
}
behaviour!(a_deleted_artifact_leaves_its_path_free(store));

async fn artifacts_are_listed_by_the_beginning_of_their_path(store: &dyn Store) {
    for (number, at) in (1..).zip(["/m/a", "/m/b/c", "/m%", "/n/a", "/M/a", "/m/\u{10ffff}"]) {
        create(store, number, Some(at)).await;
    }
    create(store, 9, None).await;
    assert_eq!(
        beginning_with(store, "/m/", 10).await,
        (
            vec!["/m/\u{10ffff}".into(), "/m/b/c".into(), "/m/a".into()],
            3
        )
    );
    assert_eq!(
        beginning_with(store, "/m/", 1).await,
        (vec!["/m/\u{10ffff}".into()], 3)
    );
    assert_eq!(
        beginning_with(store, "/m%", 10).await,
        (vec!["/m%".into()], 1)
    );
    assert_eq!(beginning_with(store, "/", 10).await.1, 6);
    assert_eq!(beginning_with(store, "/x", 10).await, (vec![], 0));
}
behaviour!(artifacts_are_listed_by_the_beginning_of_their_path(store));

/// Such a path has 4 096 bytes that cannot be compressed, more than PostgreSQL accepts in an index.
async fn the_longest_path_is_accepted(store: &dyn Store) {
    let longest = |last: char| -> String {
        let mut random = Random::new(7);
        let mut characters: Vec<char> = (0..1_024)
            .map(|_| {
                char::from_u32(0x20000 + u32::try_from(random.below(0xa000)).unwrap()).unwrap()
            })
            .collect();
        characters[1_023] = last;
        characters.into_iter().collect()
    };
    create(store, 1, Some(&longest('a'))).await;
    create(store, 2, Some(&longest('b'))).await;
    let taken = create_for(store, &me(), 3, Some(&longest('b'))).await;
    assert_eq!(reason(taken), Reason::PathTaken);
    assert_eq!(at_path(store, &me(), &longest('b')).await, Some(id(2)));
    assert_eq!(beginning_with(store, &longest('b'), 10).await.1, 1);
}
behaviour!(the_longest_path_is_accepted(store));
