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
    assert_eq!(at_path(store, &me(), "/a").await, Some(id(2)));
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

/// A path of 1 024 characters can have 4 096 bytes that cannot be compressed, more than PostgreSQL accepts in an index.
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

async fn move_all(store: &dyn Store, from: &str, to: &str) -> Result<Written<u64>, StoreError> {
    store
        .artifacts()
        .move_artifacts(&me(), path(from), path(to), options(60))
        .await
}

/// The path of each artifact up to this number, in order.
async fn paths(store: &dyn Store, up_to: u32) -> Vec<Option<String>> {
    let mut paths = Vec::new();
    for number in 1..=up_to {
        let found = store
            .artifacts()
            .get_artifact(&me(), id(number), now())
            .await;
        paths.push(
            found
                .expect("read")
                .value
                .and_then(|artifact| artifact.path),
        );
    }
    paths
}

async fn a_move_takes_what_is_at_and_below_a_path(store: &dyn Store) {
    for (number, at) in (1..).zip(["/a", "/a/b", "/a//c", "/ab", "/a/b/a/b"]) {
        create(store, number, Some(at)).await;
    }
    let other = OwnerId::new("other");
    create_for(store, &other, 9, Some("/a/b"))
        .await
        .expect("created");
    let moved = move_all(store, "/a", "/x/y").await.expect("moved");
    assert_eq!((moved.outcome, moved.revision), (4, 9));
    let expected = ["/x/y", "/x/y/b", "/x/y//c", "/ab", "/x/y/b/a/b"];
    assert_eq!(
        paths(store, 5).await,
        expected.map(|path| Some(path.to_owned()))
    );
    assert_eq!(at_path(store, &other, "/a/b").await, Some(id(9)));
    let found = store.artifacts().get_artifact(&me(), id(2), now()).await;
    assert_eq!(found.expect("read").value.expect("it exists").version, 1);
    // An artifact may get the path that another one, which is moved too, had.
    let moved = move_all(store, "/x/y", "/x/y/b").await;
    moved.expect("the operation, not the store, refuses a path below itself");
    let moved = move_all(store, "/x/y/b", "/x/y").await.expect("moved");
    assert_eq!(moved.outcome, 4);
    assert_eq!(
        paths(store, 5).await,
        expected.map(|path| Some(path.to_owned()))
    );
    assert_eq!(
        reason(move_all(store, "/nothing", "/z").await),
        Reason::ArtifactNotFound
    );
}
behaviour!(a_move_takes_what_is_at_and_below_a_path(store));

async fn a_move_changes_all_or_nothing(store: &dyn Store) {
    for (number, at) in (1..).zip(["/a/1", "/a/2", "/b/2"]) {
        create(store, number, Some(at)).await;
    }
    let before = paths(store, 3).await;
    assert_eq!(reason(move_all(store, "/a", "/b").await), Reason::PathTaken);
    let long = format!("/{}", "x".repeat(1_022));
    assert_eq!(
        reason(move_all(store, "/a", &long).await),
        Reason::InvalidArgument
    );
    assert_eq!(paths(store, 3).await, before);
    let unchanged = store.artifacts().get_artifact(&me(), id(1), now()).await;
    assert_eq!(unchanged.expect("read").revision, 3);
}
behaviour!(a_move_changes_all_or_nothing(store));

async fn a_move_gives_no_two_artifacts_the_same_path(store: &dyn Store) {
    for (number, at) in (1..).zip(["/a", "/a/", "/a/c"]) {
        create(store, number, Some(at)).await;
    }
    let Err(StoreError::Rejected(error)) = move_all(store, "/a", "/b/").await else {
        panic!("moved");
    };
    assert_eq!(error.reason, Reason::PathTaken);
    assert!(error.message.contains("two of the artifacts"), "{error}");
    move_all(store, "/a", "/b").await.expect("moved");
    let expected = ["/b", "/b/", "/b/c"];
    assert_eq!(
        paths(store, 3).await,
        expected.map(|path| Some(path.to_owned()))
    );
}
behaviour!(a_move_gives_no_two_artifacts_the_same_path(store));

async fn a_move_makes_no_path_a_file_and_a_directory(store: &dyn Store) {
    for (number, at) in (1..).zip(["/a/1", "/b/c/d", "/file"]) {
        create(store, number, Some(at)).await;
    }
    let other = OwnerId::new("other");
    create_for(store, &other, 9, Some("/free/below"))
        .await
        .expect("created");
    for (to, why, in_the_way) in [
        ("/file", "taken", "/file"),
        ("/b", "a directory", "/b/c/d"),
        ("/b/c/", "a directory", "/b/c/d"),
        ("/file/x", "in a file", "/file"),
        ("/file/x/y", "in a file", "/file"),
    ] {
        let Err(StoreError::Rejected(error)) = move_all(store, "/a", to).await else {
            panic!("moved to {to}");
        };
        assert_eq!(error.reason, Reason::PathTaken, "{to}");
        for part in ["`to`", why, &format!("`{in_the_way}`")] {
            assert!(error.message.contains(part), "{to}: {}", error.message);
        }
        assert_eq!(
            reason(move_all(store, "/nothing", to).await),
            Reason::ArtifactNotFound
        );
    }
    // What is moved itself is not in the way, and neither is a path that only begins with the same characters.
    for (from, to) in [("/b/c", "/b"), ("/a", "/fil"), ("/fil", "/free")] {
        move_all(store, from, to).await.expect("moved");
    }
    let expected = ["/free/1", "/b/d", "/file"];
    assert_eq!(
        paths(store, 3).await,
        expected.map(|path| Some(path.to_owned()))
    );
}
behaviour!(a_move_makes_no_path_a_file_and_a_directory(store));

/// A create checks only its own path, so it can succeed below a file that a move made. After the create such a move is
/// refused.
async fn concurrent_moves_make_no_path_a_file_and_a_directory(store: &dyn Store) {
    let me = me();
    let mut succeeded = 0;
    for round in 0..20 {
        let number = 10 * round + 1;
        let at = |name: &str| format!("/{round}/{name}");
        create(store, number, Some(&at("a"))).await;
        create(store, number + 1, Some(&at("b"))).await;
        create(store, number + 2, Some(&at("c"))).await;
        let (to, below, deep) = (at("to"), at("to/x"), at("to/x/y"));
        let (a, b, c) = (at("a"), at("b"), at("c"));
        // The create comes first or last. If it always came first, all moves would be refused.
        let (created, first, second, third) = if round % 2 == 0 {
            futures::join!(
                create_for(store, &me, number + 3, Some(&deep)),
                move_all(store, &a, &to),
                move_all(store, &b, &below),
                move_all(store, &c, &to),
            )
        } else {
            let (first, second, third, created) = futures::join!(
                move_all(store, &a, &to),
                move_all(store, &b, &below),
                move_all(store, &c, &to),
                create_for(store, &me, number + 3, Some(&deep)),
            );
            (created, first, second, third)
        };
        let created = created.expect("created").revision;
        let moves: Vec<_> = [first, second, third]
            .into_iter()
            .filter_map(|moved| match moved {
                Ok(moved) => Some(moved.revision),
                Err(StoreError::Rejected(error)) => {
                    assert_eq!(error.reason, Reason::PathTaken);
                    None
                }
                Err(error) => panic!("{error}"),
            })
            .collect();
        assert!(moves.len() < 2, "round {round}: {moves:?} all succeeded");
        succeeded += moves.len();
        assert!(
            moves.iter().all(|moved| *moved < created),
            "round {round}: a move at {moves:?} over the artifact created at {created}"
        );
    }
    assert!(succeeded > 0, "no move came before a create");
}
behaviour!(concurrent_moves_make_no_path_a_file_and_a_directory(store));

async fn a_delete_by_path_takes_what_is_at_and_below_it(store: &dyn Store) {
    ready(store).await;
    for (number, at) in (1..).zip(["/a", "/a/b", "/ab", "/A/b"]) {
        create(store, number, Some(at)).await;
    }
    let delete = async |at: &str| {
        let deleted = store
            .artifacts()
            .delete_artifacts(&me(), path(at), options(70))
            .await;
        deleted.expect("deleted")
    };
    let deleted = delete("/a").await;
    assert_eq!((deleted.outcome, deleted.revision), (2, 6));
    let left = [None, None, Some("/ab".to_owned()), Some("/A/b".to_owned())];
    assert_eq!(paths(store, 4).await, left);
    let again = delete("/a").await;
    assert_eq!((again.outcome, again.revision), (0, 6));
}
behaviour!(a_delete_by_path_takes_what_is_at_and_below_it(store));

async fn a_write_by_path_reaches_at_most_1000_artifacts(store: &dyn Store) {
    for number in 1..=1_001 {
        create(store, number, Some(&format!("/a/{number}"))).await;
    }
    assert_eq!(
        reason(move_all(store, "/a", "/b").await),
        Reason::InvalidArgument
    );
    let deleted = store
        .artifacts()
        .delete_artifacts(&me(), path("/a"), options(70))
        .await;
    assert_eq!(reason(deleted), Reason::InvalidArgument);
    change(store, 1_001, PathChange::Remove, None)
        .await
        .expect("updated");
    let moved = move_all(store, "/a", "/b").await.expect("moved");
    assert_eq!(moved.outcome, 1_000);
    assert_eq!(beginning_with(store, "/b/", 1).await.1, 1_000);
    let deleted = store
        .artifacts()
        .delete_artifacts(&me(), path("/b"), options(80))
        .await;
    assert_eq!(deleted.expect("deleted").outcome, 1_000);
    assert_eq!(beginning_with(store, "/", 1).await.1, 0);
    assert_eq!(paths(store, 1).await, [None::<String>]);
    let kept = store
        .artifacts()
        .get_artifact(&me(), id(1_001), now())
        .await;
    assert!(kept.expect("read").value.is_some());
}
behaviour!(a_write_by_path_reaches_at_most_1000_artifacts(store));
