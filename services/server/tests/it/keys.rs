//! Keys: creating, listing, changing and deactivating them, caching of verified keys, and rate limits.

use std::time::{Duration, Instant};

use context_engine::{Admin, Caller, Clock, Scope};
use context_model::{Reason, Timestamp, UpdateApiKeyRequest};
use context_proto::v1 as pb;
use context_proto::v1::api_key_service_client::ApiKeyServiceClient;
use context_store::{KeyEvent, OwnerId, Store as _, StoredKey};
use context_store_sqlite::{Config, SqliteStore};
use context_test_support::http::{Reply, Request};
use context_test_support::{grpc, until};
use http::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::changes::both;
use crate::service::{Service, settings};

fn with(request: Request, key: &str) -> Request {
    request.header("authorization", &format!("Bearer {key}"))
}

async fn keyed() -> (Service, String) {
    let service = Service::start_with(&["--auth=keys"]).await;
    let key = service
        .first_key
        .clone()
        .expect("the first start makes a key");
    (service, key)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_manages_its_keys() {
    let (service, first) = keyed().await;
    let body = json!({"name": "dashboard", "scopes": ["read"], "expires_at": "2035-01-01"});
    let made = with(service.post("/v1/api-keys", body), &first)
        .send()
        .await;
    assert_eq!(made.status, StatusCode::CREATED);
    let (key, id) = (
        made.json()["key"].as_str().unwrap().to_owned(),
        made.json()["api_key"]["id"].as_str().unwrap().to_owned(),
    );
    assert_eq!(
        made.header("location"),
        Some(format!("/v1/api-keys/{id}").as_str())
    );
    assert_eq!((key.len(), key.starts_with("sk_prod_")), (40, true));

    let listed = with(service.get("/v1/api-keys"), &first).send().await;
    assert_eq!(listed.json()["result"].as_array().unwrap().len(), 2);
    assert!(
        !listed.body.contains(&key[8..]) && !listed.body.contains("$2"),
        "neither the key nor its hash"
    );
    assert_eq!(
        with(service.get("/v1/threads"), &key).send().await.status,
        StatusCode::OK
    );
    let mut shown = json!({});
    until("the use is recorded", async || {
        shown = with(service.get(&format!("/v1/api-keys/{id}")), &first)
            .send()
            .await
            .json();
        !shown["last_used_at"].is_null()
    })
    .await;
    assert_eq!(
        (&shown["name"], &shown["scopes"], &shown["active"]),
        (&json!("dashboard"), &json!(["read"]), &json!(true))
    );

    let changed = with(
        service.patch(
            &format!("/v1/api-keys/{id}"),
            json!({"name": "wall", "expires_at": ""}),
        ),
        &first,
    )
    .send()
    .await;
    assert_eq!(
        (&changed.json()["name"], &changed.json()["expires_at"]),
        (&json!("wall"), &json!(null))
    );
    let off = with(
        service.post(&format!("/v1/api-keys/{id}/deactivate"), json!({})),
        &first,
    )
    .send()
    .await;
    assert_eq!(off.json()["active"], false);
    until("the key is refused", async || {
        let reply = with(service.get("/v1/threads"), &key).send().await;
        reply.status == StatusCode::UNAUTHORIZED
    })
    .await;
    for (body, field) in [
        (json!({"name": " "}), "name"),
        (json!({"name": "x", "scopes": ["admin"]}), "scopes"),
        (json!({"name": "x", "scopes": []}), "scopes"),
        (
            json!({"name": "x", "expires_at": "2020-01-01"}),
            "expires_at",
        ),
        (json!({"name": "x", "only": "threads"}), "only"),
    ] {
        let refused = with(service.post("/v1/api-keys", body), &first)
            .send()
            .await;
        assert_eq!(
            (
                refused.status,
                refused.json()["violations"][0]["field"].as_str()
            ),
            (StatusCode::BAD_REQUEST, Some(field))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_gives_no_right_that_it_lacks_itself() {
    let (service, _) = keyed().await;
    let key = service.key("default", &["read", "manage"]).await;
    let refused = with(
        service.post(
            "/v1/api-keys",
            json!({"name": "x", "scopes": ["read", "write"]}),
        ),
        &key.text,
    )
    .send()
    .await;
    assert_eq!(
        (refused.status, refused.reason().as_str()),
        (StatusCode::FORBIDDEN, "SCOPE_MISSING")
    );
    let refused = with(
        service.patch(
            &format!("/v1/api-keys/{}", key.id),
            json!({"scopes": ["delete"]}),
        ),
        &key.text,
    )
    .send()
    .await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    // It prolongs no key that may do more than itself, so it cannot bring back an expired one. It may shorten it.
    let stronger = service.key("default", &["read", "write"]).await;
    let expiry = async |expires_at| {
        let path = format!("/v1/api-keys/{}", stronger.id);
        let changed = service.patch(&path, json!({"expires_at": expires_at}));
        with(changed, &key.text).send().await.status
    };
    assert_eq!(expiry("2999-01-01").await, StatusCode::OK);
    assert_eq!(expiry("2998-01-01").await, StatusCode::OK);
    assert_eq!(expiry("2999-01-01").await, StatusCode::FORBIDDEN);
    assert_eq!(expiry("").await, StatusCode::FORBIDDEN);
    let theirs = service.key("other", &["read"]).await;
    let unknown = with(
        service.get(&format!("/v1/api-keys/{}", theirs.id)),
        &key.text,
    )
    .send()
    .await;
    assert_eq!(
        (unknown.status, unknown.reason().as_str()),
        (StatusCode::NOT_FOUND, "API_KEY_NOT_FOUND")
    );
}

/// Stores an expired key, and then a thousand keys without expiry: as many as a list has.
async fn with_a_thousand_newer_keys(database: &std::path::Path) {
    let store = SqliteStore::open(Config::new(database)).unwrap();
    let keys = (0..=1000).map(|n| {
        let key = StoredKey {
            id: format!("key-{n}"),
            owner: OwnerId::default(),
            name: "key".to_owned(),
            lookup: [7; 32],
            hash: format!("hash {n}"),
            digest: None,
            scopes: vec!["read".to_owned(), "write".to_owned(), "delete".to_owned()],
            narrowing: "{}".to_owned(),
            created_at: Timestamp(n),
            expires_at: (n == 0).then_some(Timestamp(1)),
            last_used_at: None,
            deactivated_at: None,
        };
        let event = KeyEvent {
            id: format!("event-{n}"),
            at: Timestamp(n),
            actor: None,
            operation: "create_api_key".to_owned(),
            key_id: key.id.clone(),
        };
        store.keys().insert_key(key, event)
    });
    futures::future::try_join_all(keys).await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stronger_key_is_not_prolonged_although_a_thousand_are_newer() {
    let directory = tempfile::tempdir().unwrap();
    with_a_thousand_newer_keys(&directory.path().join("contexts.db")).await;
    let config = settings(directory.path(), &[]);
    let context_service::Started::Running(running) = context_service::start(&config).await.unwrap()
    else {
        panic!("the service must run")
    };
    let manager = Caller {
        scopes: vec![Scope::Read, Scope::Manage],
        ..Caller::local()
    };
    let prolong = UpdateApiKeyRequest {
        key_id: "key-0".to_owned(),
        expires_at: Some("2999-01-01".to_owned()),
        ..UpdateApiKeyRequest::default()
    };
    let access = &running.engine().access;
    let refused = access.update_api_key(&manager, prolong).await.unwrap_err();
    assert_eq!(refused.reason, Reason::ScopeMissing);
    running.stop().cancel();
    running.run().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_with_a_new_key_needs_no_bcrypt() {
    let (service, key) = keyed().await;
    let requests = (0..2000).map(|_| with(service.get("/v1/threads?limit=1"), &key).send());
    let replies: Vec<Reply> = futures::StreamExt::collect(futures::StreamExt::buffer_unordered(
        futures::stream::iter(requests),
        100,
    ))
    .await;
    assert!(replies.iter().all(|reply| reply.status == StatusCode::OK));
    let metrics = service.get("/metrics").send().await.body;
    assert!(
        metrics.contains("context_key_verifications 0\n"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_stops_within_a_second() {
    let (service, _) = keyed().await;
    let key = service.key("default", &["read"]).await;
    assert_eq!(
        with(service.get("/v1/threads"), &key.text)
            .send()
            .await
            .status,
        StatusCode::OK
    );
    service
        .engine
        .access
        .administer(Admin::RevokeKey {
            owner: "default".into(),
            key_id: key.id,
        })
        .await
        .unwrap();
    #[expect(
        clippy::disallowed_methods,
        reason = "the documented limit of one second"
    )]
    let revoked = Instant::now();
    loop {
        // When the request began: a busy machine may return its reply much later.
        let asked = revoked.elapsed();
        let reply = with(service.get("/v1/threads"), &key.text).send().await;
        if reply.status == StatusCode::UNAUTHORIZED {
            break;
        }
        assert!(asked < Duration::from_secs(1), "it still works");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_over_its_rate_is_told_when_to_come_back() {
    let service = Service::start_with(&["--auth=keys", "--rate-limit-per-minute=6"]).await;
    let key = service.first_key.clone().unwrap();
    assert_eq!(
        with(service.get("/v1/threads"), &key).send().await.status,
        StatusCode::OK
    );
    let refused = with(service.get("/v1/threads"), &key).send().await;
    assert_eq!(
        (refused.status, refused.reason().as_str()),
        (StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED")
    );
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=10).contains(&seconds), "{seconds}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_says_who_did_what_and_what_was_refused_without_contents() {
    let (service, first) = keyed().await;
    let reader = service.key("default", &["read"]).await;
    let body = json!({"thread_id": "t", "source": "user", "text": "a secret canary"});
    with(service.post("/v1/contexts", body.clone()), &first)
        .send()
        .await;
    with(
        service.post("/v1/artifacts", json!({"content": "a secret canary"})),
        &first,
    )
    .send()
    .await;
    assert_eq!(
        with(service.post("/v1/contexts", body), &reader.text)
            .send()
            .await
            .status,
        StatusCode::FORBIDDEN
    );
    let audit = || {
        service.engine.access.administer(Admin::Audit {
            owner: "default".into(),
            from: None,
            skip: 0,
        })
    };
    let mut log = String::new();
    until("the refusal is in the log", async || {
        log = audit().await.unwrap();
        log.contains("SCOPE_MISSING")
    })
    .await;
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |outcome: &str| {
        lines
            .iter()
            .filter(|line| line["outcome"] == outcome)
            .cloned()
            .collect::<Vec<_>>()
    };
    let made: Vec<_> = of("OK").iter().map(|line| line["entity"].clone()).collect();
    assert_eq!(
        made,
        [
            json!("api_key"),
            json!("api_key"),
            json!("context"),
            json!("artifact")
        ]
    );
    let refused = &of("SCOPE_MISSING")[0];
    assert_eq!(
        (&refused["operation"], &refused["key_id"]),
        (&json!("store_context"), &json!(reader.id))
    );
    assert!(!log.contains("canary"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_leave_the_audit_log_after_as_many_days_as_the_setting_says() {
    let (service, _) = keyed().await;
    let audit = || {
        service.engine.access.administer(Admin::Audit {
            owner: "default".into(),
            from: None,
            skip: 0,
        })
    };
    service.key("default", &["read"]).await;
    let log = audit().await.unwrap();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [first, second] = [&lines[0], &lines[1]].map(|line| {
        assert_eq!(line["operation"], "create_api_key");
        serde_json::from_value::<Timestamp>(line["at"].clone()).unwrap()
    });
    assert!(lines.len() == 2 && first < second, "{log}");
    let a_day_after = |time: Timestamp| At(Timestamp(time.micros() + 24 * 3600 * 1_000_000));
    let (of_second, later) = (
        a_day_after(second),
        a_day_after(Timestamp(second.micros() + 1)),
    );
    let background = &service.engine.background;
    background.shorten_audit_logs(None, &later).await;
    assert_eq!(audit().await.unwrap(), log);
    tokio::select! {
        () = background.shorten_audit_logs(Some(1), &of_second) => {}
        () = until("the first line is gone", async || audit().await.unwrap() != log) => {}
    }
    // The second line is not older than a day.
    assert_eq!(audit().await.unwrap().lines().next(), log.lines().nth(1));
    tokio::select! {
        () = background.shorten_audit_logs(Some(1), &later) => {}
        () = until("the log is empty", async || audit().await.unwrap().is_empty()) => {}
    }
}

/// A clock that stands still at this time.
struct At(Timestamp);

impl Clock for At {
    fn now(&self) -> Timestamp {
        self.0
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_key_is_made_once() {
    let directory = tempfile::tempdir().unwrap();
    let config = settings(directory.path(), &["--auth=keys"]);
    let mut keys = Vec::new();
    for _ in 0..2 {
        let context_service::Started::Running(running) =
            context_service::start(&config).await.unwrap()
        else {
            panic!("the service must run")
        };
        keys.push(running.start_report().first_key.clone());
        if let Some(key) = &keys[0] {
            assert_eq!(
                running.start_report().banner().contains(key),
                keys.len() == 1
            );
        }
        running.stop().cancel();
        running.run().await;
    }
    assert!(keys[0].is_some() && keys[1].is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_to_keys_over_rest_and_grpc_stands_in_the_audit_log_of_both_databases() {
    for (service, _database) in both(&["--auth=keys"]).await {
        let first = service
            .first_key
            .clone()
            .expect("the first start makes a key");
        let rest = with(
            service.post("/v1/api-keys", json!({"name": "rest"})),
            &first,
        )
        .send()
        .await
        .json()["api_key"]["id"]
            .clone();
        let rest = rest.as_str().expect("an id").to_owned();
        with(
            service.patch(&format!("/v1/api-keys/{rest}"), json!({"scopes": ["read"]})),
            &first,
        )
        .send()
        .await;
        with(
            service.patch(&format!("/v1/api-keys/{rest}"), json!({"scopes": ["read"]})),
            &first,
        )
        .send()
        .await;
        with(
            service.post(&format!("/v1/api-keys/{rest}/deactivate"), json!({})),
            &first,
        )
        .send()
        .await;
        let mut client = ApiKeyServiceClient::new(grpc::at(service.address));
        let request = pb::CreateApiKeyRequest {
            name: "grpc".to_owned(),
            ..Default::default()
        };
        let made = client
            .create_api_key(signed(request, &first))
            .await
            .expect("a key")
            .into_inner();
        let grpc = made.api_key.expect("a key").id;
        let request = pb::DeactivateApiKeyRequest {
            key_id: grpc.clone(),
        };
        client
            .deactivate_api_key(signed(request, &first))
            .await
            .expect("it is deactivated");
        let log = service
            .engine
            .access
            .administer(Admin::Audit {
                owner: "default".into(),
                from: None,
                skip: 0,
            })
            .await
            .expect("the log");
        let lines: Vec<serde_json::Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let actor = lines[1]["key_id"].clone();
        assert_eq!(
            lines[0]["entity_id"], actor,
            "the first key has no actor and creates the others: {log}"
        );
        let shown: Vec<_> = lines[1..]
            .iter()
            .map(|line| {
                (
                    line["operation"].as_str().unwrap(),
                    line["entity_id"].as_str().unwrap(),
                )
            })
            .collect();
        let [rest, grpc] = [rest.as_str(), grpc.as_str()];
        let expected = [
            ("create_api_key", rest),
            ("update_api_key", rest),
            ("deactivate_api_key", rest),
            ("create_api_key", grpc),
            ("deactivate_api_key", grpc),
        ];
        assert_eq!(shown, expected, "what changes nothing has no line");
        assert!(
            lines[1..].iter().all(|line| line["key_id"] == actor
                && line["entity"] == "api_key"
                && line["outcome"] == "OK"),
            "{log}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_authentication_keys_are_administered_over_the_socket_alone() {
    let service = Service::start().await;
    let mut client = ApiKeyServiceClient::new(grpc::at(service.address));
    let refused = client
        .create_api_key(pb::CreateApiKeyRequest {
            name: "x".to_owned(),
            ..Default::default()
        })
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert!(refused.message().contains("AUTH is off"), "{refused:?}");
    let requests = [
        service.post("/v1/api-keys", json!({"name": "x"})),
        service.get("/v1/api-keys"),
        service.get("/v1/api-keys/1"),
        service.patch("/v1/api-keys/1", json!({"name": "x"})),
        service.post("/v1/api-keys/1/deactivate", json!({})),
    ];
    for request in requests {
        let reply = request.send().await;
        assert_eq!(
            (reply.status, reply.reason().as_str()),
            (StatusCode::CONFLICT, "FEATURE_UNAVAILABLE"),
            "{}",
            reply.body
        );
    }
    let caller = client
        .get_caller(pb::GetCallerRequest {})
        .await
        .expect("no key is needed")
        .into_inner();
    assert!(caller.scopes.contains(&"write".to_owned()));

    let body = json!({"name": "by hand"}).to_string();
    let head = format!(
        "POST /v1/api-keys HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}",
        body.len()
    );
    let mut socket = tokio::net::UnixStream::connect(&service.socket)
        .await
        .expect("the socket is open");
    socket
        .write_all(format!("{head}\r\nconnection: close\r\n\r\n{body}").as_bytes())
        .await
        .expect("it is sent");
    let mut reply = String::new();
    socket.read_to_string(&mut reply).await.expect("a reply");
    let (head, body) = reply.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 201"), "{reply}");
    let made: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert!(
        made["notice"]
            .as_str()
            .is_some_and(|notice| notice.contains("AUTH is off")),
        "{made}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_with_a_control_character_is_no_id_of_a_key_on_either_database() {
    for (service, _database) in both(&["--auth=keys"]).await {
        let first = service
            .first_key
            .clone()
            .expect("the first start makes a key");
        for id in ["%00", "a%00b", "%0A"] {
            let path = format!("/v1/api-keys/{id}");
            for request in [
                service.get(&path),
                service.patch(&path, json!({"name": "x"})),
                service.post(&format!("{path}/deactivate"), json!({})),
            ] {
                let reply = with(request, &first).send().await;
                let field = reply.json()["violations"][0]["field"].clone();
                assert_eq!(
                    (reply.status, reply.reason().as_str()),
                    (StatusCode::BAD_REQUEST, "INVALID_ARGUMENT"),
                    "{}",
                    reply.body
                );
                assert_eq!(field, "key_id");
            }
        }
        let unknown = with(service.get("/v1/api-keys/%F0%9F%94%91"), &first)
            .send()
            .await;
        assert_eq!(
            (unknown.status, unknown.reason().as_str()),
            (StatusCode::NOT_FOUND, "API_KEY_NOT_FOUND")
        );
    }
}

fn signed<T>(message: T, key: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert(
        "authorization",
        format!("Bearer {key}").parse().expect("a header"),
    );
    request
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_may_not_read_gets_no_content_from_its_update() {
    let (service, first) = keyed().await;
    let create = service.post("/v1/artifacts", json!({"content": "# Secret plan"}));
    let made = with(create, &first).send().await.json();
    let path = format!("/v1/artifacts/{}", made["id"].as_str().expect("an id"));
    for (scopes, content) in [
        (vec!["write"], None),
        (vec!["read", "write"], Some(json!("# Secret plan"))),
    ] {
        let key = service.key("default", &scopes).await.text;
        let change = json!({"metadata": {"scopes": scopes}, "return_content": true});
        let reply = service
            .patch(&path, change)
            .header("authorization", &key)
            .send()
            .await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.body);
        assert_eq!(reply.json().get("content").cloned(), content, "{scopes:?}");
    }
}
