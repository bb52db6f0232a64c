//! No operation shows an owner any data of another owner.

use std::collections::HashMap;
use std::sync::Arc;

use context_engine::{Admin, Caller, Engine, Reach, WriteContext};
use context_model as m;
use context_model::Scope;
use context_store::{Memory, OwnerId};
use context_test_support::Random;
use serde::Serialize;

use crate::changes::both;
use crate::service::Service;

const OWNERS: usize = 10;
const OPERATIONS: u64 = 10_000;

fn caller(owner: &str) -> Caller {
    Caller {
        owner: OwnerId::new(owner),
        key_id: Some(format!("key-{owner}")),
        scopes: Scope::ALL.to_vec(),
        operator: false,
        memory: Memory::UNCOUNTED,
        ..Caller::local()
    }
}

/// A word that no other owner uses.
fn canary(owner: usize) -> String {
    format!("canary{}x", "abcdefghij".as_bytes()[owner] as char)
}

/// The artifacts and the number of entries that one owner has created. All owners request them.
#[derive(Default)]
struct Made {
    artifacts: Vec<String>,
    contexts: i64,
}

/// A caller that is narrowed to the thread named after its canary. All these callers have the same owner.
fn narrowed(number: usize) -> Caller {
    let threads = m::ThreadSet::from_shown(&[format!("thread {}", canary(number))]).unwrap();
    Caller {
        reach: Reach::Threads(Arc::new(threads)),
        ..caller("shared")
    }
}

async fn step(
    engine: &Engine,
    me: Caller,
    random: &mut Random,
    owner: usize,
    made: &mut HashMap<usize, Made>,
) -> String {
    let word = canary(owner);
    let write = WriteContext::default;
    let theirs = random.below(OWNERS);
    let artifact_id = {
        let all = &made.entry(theirs).or_default().artifacts;
        all.get(random.below(all.len()))
            .cloned()
            .unwrap_or_else(|| "123e4567-e89b-12d3-a456-426614174000".to_owned())
    };
    let query = if random.one_in(2) {
        canary(theirs)
    } else {
        "common".to_owned()
    };
    let text = format!("{word} common words {}", random.below(1_000_000));
    let context_id = i64::try_from(random.below(50) + 1).unwrap();
    /// The reply or the error in the form that the caller receives.
    fn shown<T: Serialize>(outcome: m::Result<T>) -> String {
        match outcome {
            Ok(reply) => serde_json::to_string(&reply).unwrap(),
            Err(error) => format!("{} {:?}", error.message, error.violations),
        }
    }
    match random.below(14) {
        0 | 1 => {
            let metadata = serde_json::json!({"word": word}).as_object().cloned();
            let tags = Some(vec![word.clone(), "common".to_owned()]);
            let thread_id = format!("thread {word}");
            let request = m::StoreContextRequest {
                thread_id,
                source: "user".to_owned(),
                text,
                metadata,
                tags,
                images: None,
            };
            let reply = engine.contexts.store_context(&me, request, write()).await;
            if reply.is_ok() {
                made.entry(owner).or_default().contexts += 1;
            }
            shown(reply)
        }
        2 => {
            let request = m::CreateArtifactRequest {
                content: format!("# {word}\n{text}"),
                ..Default::default()
            };
            let reply = engine
                .artifacts
                .create_artifact(&me, request, write())
                .await;
            if let Ok(reply) = &reply {
                made.entry(owner)
                    .or_default()
                    .artifacts
                    .push(reply.id.clone());
            }
            shown(reply)
        }
        3 => shown(
            engine
                .contexts
                .get_context_by_ids(
                    &me,
                    m::GetContextByIdsRequest {
                        context_ids: vec![context_id],
                        ..Default::default()
                    },
                )
                .await,
        ),
        4 => shown(
            engine
                .retrieval
                .search_context(
                    &me,
                    m::SearchContextRequest {
                        filters: m::FilterInput {
                            tags: Some(vec![query]),
                            ..Default::default()
                        },
                        ..Default::default()
                    },
                )
                .await,
        ),
        5 => {
            let request = m::FtsSearchContextRequest {
                query,
                highlight: Some(true),
                ..Default::default()
            };
            // The query is echoed, and it may be another owner's word.
            shown(
                engine
                    .retrieval
                    .fts_search_context(&me, request)
                    .await
                    .map(|reply| reply.results),
            )
        }
        6 => {
            let listed = engine
                .contexts
                .list_threads(&me, m::ListThreadsRequest::default())
                .await
                .unwrap();
            let entries: i64 = listed.threads.iter().map(|thread| thread.entry_count).sum();
            let stored = made.entry(owner).or_default().contexts;
            assert_eq!(
                (entries, listed.threads.len()),
                (stored, usize::from(stored > 0)),
                "it lists threads of others"
            );
            shown(Ok(listed))
        }
        7 => {
            let statistics = engine.get_statistics(&me, None).await.unwrap();
            let stored = made.entry(owner).or_default().contexts;
            let tags = if stored > 0 { 2 } else { 0 };
            assert_eq!(
                (statistics.total_entries, statistics.unique_tags),
                (stored, tags),
                "it counts entries of others"
            );
            assert!(statistics.connection_metrics.is_none());
            shown(Ok(statistics))
        }
        8 => {
            let request = m::UpdateContextRequest {
                context_id,
                text: Some(text),
                ..Default::default()
            };
            shown(engine.contexts.update_context(&me, request, write()).await)
        }
        9 => shown(
            engine
                .artifacts
                .get_artifact(
                    &me,
                    m::GetArtifactRequest {
                        artifact_id,
                        ..Default::default()
                    },
                )
                .await,
        ),
        10 => {
            let request = m::UpdateArtifactRequest {
                artifact_id,
                content: Some(format!("# {word}\n{text}")),
                ..Default::default()
            };
            shown(
                engine
                    .artifacts
                    .update_artifact(&me, request, write())
                    .await,
            )
        }
        11 => {
            let listed = engine
                .artifacts
                .list_artifacts(
                    &me,
                    m::ListArtifactsRequest {
                        limit: Some(50),
                        ..Default::default()
                    },
                )
                .await;
            let total = listed.as_ref().map_or(0, |listed| listed.total);
            assert_eq!(
                usize::try_from(total).unwrap(),
                made.entry(owner).or_default().artifacts.len(),
                "it counts artifacts of others"
            );
            shown(listed)
        }
        12 => {
            let found = engine
                .artifacts
                .search_artifacts(
                    &me,
                    m::SearchArtifactsRequest {
                        query,
                        ..Default::default()
                    },
                )
                .await;
            shown(found.map(|found| {
                found
                    .result
                    .into_iter()
                    .map(|hit| (hit.id, hit.title, hit.content_preview))
                    .collect::<Vec<_>>()
            }))
        }
        _ => {
            if random.one_in(4) {
                let deleted = engine
                    .artifacts
                    .delete_artifact(
                        &me,
                        m::DeleteArtifactRequest {
                            artifact_id: artifact_id.clone(),
                        },
                        write(),
                    )
                    .await;
                if deleted.is_ok() {
                    made.entry(owner)
                        .or_default()
                        .artifacts
                        .retain(|id| *id != artifact_id);
                }
                shown(deleted)
            } else {
                let request = m::ListArtifactVersionsRequest {
                    artifact_id,
                    ..Default::default()
                };
                shown(engine.artifacts.list_artifact_versions(&me, request).await)
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_owners_never_see_anything_of_each_other() {
    let service = Service::start().await;
    let (mut random, mut made) = (Random::new(0x5eed), HashMap::new());
    let mut makers = HashMap::new();
    for _ in 0..OPERATIONS {
        let owner = random.below(OWNERS);
        let seen = step(
            &service.engine,
            caller(&format!("owner-{owner}")),
            &mut random,
            owner,
            &mut made,
        )
        .await;
        makers.extend(
            made.get(&owner)
                .and_then(|made: &Made| made.artifacts.last())
                .map(|id| (id.clone(), owner)),
        );
        // An error repeats the requested id, so only replies are checked.
        if seen.starts_with(['{', '[']) {
            let foreign = seen
                .split('"')
                .find(|id| makers.get(*id).is_some_and(|maker| *maker != owner));
            assert_eq!(
                foreign, None,
                "owner {owner} sees an artifact of another: {seen}"
            );
        }
        for other in (0..OWNERS).filter(|other| *other != owner) {
            assert!(
                !seen.contains(&canary(other)),
                "owner {owner} sees {}: {seen}",
                canary(other)
            );
        }
    }
    let contexts: i64 = made.values().map(|made| made.contexts).sum();
    let artifacts: usize = made.values().map(|made| made.artifacts.len()).sum();
    assert!(
        contexts > 1000 && artifacts > 100,
        "{contexts} entries and {artifacts} artifacts"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_narrowed_to_threads_never_see_anything_of_each_other() {
    let service = Service::start().await;
    let (mut random, mut made) = (Random::new(0xcafe), HashMap::new());
    for _ in 0..OPERATIONS {
        let number = random.below(OWNERS);
        let seen = step(
            &service.engine,
            narrowed(number),
            &mut random,
            number,
            &mut made,
        )
        .await;
        for other in (0..OWNERS).filter(|other| *other != number) {
            assert!(
                !seen.contains(&canary(other)),
                "caller {number} sees {}: {seen}",
                canary(other)
            );
        }
    }
    let stored = service
        .engine
        .get_statistics(&caller("shared"), None)
        .await
        .unwrap()
        .total_entries;
    assert!(stored > 1000, "the callers stored entries: {stored}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_write_moves_no_score_and_no_rank() {
    for (service, _database) in both(&[]).await {
        let me = caller("me");
        for i in 0..50 {
            let text = format!(
                "{} common words {}",
                if i % 3 == 0 { "rare" } else { "other" },
                "common ".repeat(i % 5)
            );
            let request = m::StoreContextRequest {
                thread_id: "t".into(),
                source: "user".into(),
                text: format!("{text} {i}"),
                ..Default::default()
            };
            service
                .engine
                .contexts
                .store_context(&me, request, WriteContext::default())
                .await
                .unwrap();
        }
        let ranked = || async {
            let request = m::FtsSearchContextRequest {
                query: "rare common".into(),
                limit: Some(50),
                ..Default::default()
            };
            service
                .engine
                .retrieval
                .fts_search_context(&me, request)
                .await
                .unwrap()
        };
        let before = ranked().await;
        assert!(before.count >= 17, "{}", before.count);
        for _ in 0..10 {
            let entry = |i: usize| m::StoreContextRequest {
                thread_id: format!("t{i}"),
                source: "agent".into(),
                text: format!("rare rare common {i}"),
                ..Default::default()
            };
            let request = m::StoreContextBatchRequest {
                entries: (0..100).map(entry).collect(),
                atomic: None,
            };
            service
                .engine
                .contexts
                .store_context_batch(&caller("them"), request, WriteContext::default())
                .await
                .unwrap();
        }
        let [after, before] = [ranked().await, before].map(|reply| serde_json::to_string(&reply));
        assert_eq!(after.unwrap(), before.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_owner_leaves_nothing_and_can_begin_again() {
    let service = Service::start().await;
    let (me, them) = (caller("me"), caller("them"));
    for caller in [&me, &them] {
        let request = m::StoreContextRequest {
            thread_id: "t".into(),
            source: "user".into(),
            text: "words".into(),
            ..Default::default()
        };
        service
            .engine
            .contexts
            .store_context(caller, request, WriteContext::default())
            .await
            .unwrap();
        let request = m::CreateArtifactRequest {
            content: "# Words".into(),
            ..Default::default()
        };
        service
            .engine
            .artifacts
            .create_artifact(caller, request, WriteContext::default())
            .await
            .unwrap();
    }
    let erase = Admin::EraseOwner { owner: "me".into() };
    assert_eq!(
        service
            .engine
            .access
            .administer(erase.clone())
            .await
            .unwrap(),
        "Erased owner me: 1 contexts, 1 artifacts, 0 active keys.\n"
    );
    assert_eq!(
        service.engine.access.administer(erase).await.unwrap(),
        "There is no owner me.\n"
    );
    assert_eq!(
        service
            .engine
            .access
            .administer(Admin::Audit {
                owner: "me".into(),
                from: None,
                skip: 0,
            })
            .await
            .unwrap(),
        ""
    );
    assert_eq!(
        service
            .engine
            .artifacts
            .list_artifacts(&me, m::ListArtifactsRequest::default())
            .await
            .unwrap()
            .total,
        0
    );
    assert_eq!(
        service
            .engine
            .artifacts
            .list_artifacts(&them, m::ListArtifactsRequest::default())
            .await
            .unwrap()
            .total,
        1
    );
    let request = m::StoreContextRequest {
        thread_id: "t".into(),
        source: "user".into(),
        text: "other".into(),
        ..Default::default()
    };
    let again = service
        .engine
        .contexts
        .store_context(&me, request, WriteContext::default())
        .await
        .unwrap();
    assert!(!again.duplicate);
    let search = |query: &str| m::FtsSearchContextRequest {
        query: query.into(),
        ..Default::default()
    };
    assert_eq!(
        service
            .engine
            .retrieval
            .fts_search_context(&me, search("words"))
            .await
            .unwrap()
            .count,
        0
    );
    assert_eq!(
        service
            .engine
            .retrieval
            .fts_search_context(&me, search("other"))
            .await
            .unwrap()
            .count,
        1
    );
    assert_eq!(
        service
            .engine
            .retrieval
            .fts_search_context(&them, search("words"))
            .await
            .unwrap()
            .count,
        1
    );
}
