//! Every operation with every kind of credentials, over gRPC and REST. The operations are those of the service
//! descriptor and of the OpenAPI document, so that a new one cannot be forgotten.

use std::time::Duration;

use context_model::{CreateApiKeyRequest, Reason, Scope};
use context_proto::FILE_DESCRIPTOR_SET;
use context_service::document;
use context_test_postgres::TestDatabase;
use context_test_support::http::Reply;
use context_test_support::{from_now, until};
use prost::Message as _;
use prost_types::FileDescriptorSet;

use crate::service::Service;

const REQUIRED: &str = "Authentication required. Please provide a valid API key.";

/// The scope that an operation needs, by its documented name. `None` if any key is sufficient.
fn scope(operation: &str) -> Option<Scope> {
    let has = |words: &[&str]| {
        words
            .iter()
            .any(|word| operation.split('_').any(|part| part == *word))
    };
    Some(match operation {
        "get_caller" => return None,
        "list_metadata_keys" => Scope::Read,
        _ if has(&["key", "keys"]) => Scope::Manage,
        _ if has(&["delete"]) => Scope::Delete,
        _ if has(&["search", "get", "list", "diff", "changes", "watch"]) => Scope::Read,
        _ if has(&["store", "create", "update", "restore", "move"]) => Scope::Write,
        other => panic!("say which scope {other} needs"),
    })
}

/// The kind of resource of an operation, to which a key can be narrowed.
fn resource_of(operation: &str) -> &'static str {
    if operation.contains("artifact") {
        "artifacts"
    } else {
        "contexts"
    }
}

fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// One operation over one transport.
enum Call {
    Grpc { path: String, body: Vec<u8> },
    Rest { method: String, path: String },
}

/// Every operation of both transports with its name.
fn operations() -> Vec<(String, Call)> {
    let mut operations = Vec::new();
    let descriptors = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).unwrap();
    for file in &descriptors.file {
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                // A bad cursor, so that the stream ends at once.
                let body = if method.server_streaming() {
                    vec![0, 0, 0, 0, 3, 0x0a, 1, b'x']
                } else {
                    vec![0; 5]
                };
                operations.push((snake(method.name()), Call::Grpc { path, body }));
            }
        }
    }
    let document: serde_json::Value = serde_json::from_str(&document()).unwrap();
    for (path, item) in document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(path, _)| path.starts_with("/v1/"))
    {
        for (method, operation) in item.as_object().unwrap() {
            let path = path
                .replace("{context_id}", "1")
                .replace("{thread_id}", "t")
                .replace("{artifact_id}", "123e4567-e89b-12d3-a456-426614174000")
                .replace("{version}", "1")
                .replace("{key_id}", "123e4567-e89b-12d3-a456-426614174000");
            operations.push((
                operation["operationId"].as_str().unwrap().to_owned(),
                Call::Rest {
                    method: method.to_uppercase(),
                    path,
                },
            ));
        }
    }
    assert!(operations.len() > 50, "{}", operations.len());
    operations
}

impl Call {
    async fn send(&self, service: &Service, authorization: Option<&str>) -> Reply {
        let request = match self {
            Self::Grpc { path, body } => service
                .request("POST", path)
                .http2()
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .body(body.clone()),
            Self::Rest { method, path } if matches!(method.as_str(), "POST" | "PATCH") => {
                service.request(method, path).json(&serde_json::json!({}))
            }
            Self::Rest { method, path } if path == "/v1/watch" => {
                service.request(method, "/v1/watch?cursor=x")
            }
            Self::Rest { method, path } => service.request(method, path),
        };
        match authorization {
            Some(value) => request.header("authorization", value),
            None => request,
        }
        .send()
        .await
    }

    /// The code and the message if the request was rejected because of its credentials, else `None`.
    async fn refusal(
        &self,
        service: &Service,
        authorization: Option<&str>,
    ) -> Option<(&'static str, String)> {
        let reply = self.send(service, authorization).await;
        match self {
            Self::Grpc { .. } => {
                let message = reply
                    .header("grpc-message")
                    .unwrap_or_default()
                    .replace("%20", " ")
                    .replace("%60", "`");
                match reply.header("grpc-status") {
                    Some("16") => Some(("unauthenticated", message)),
                    Some("7") => Some(("denied", message)),
                    _ => None,
                }
            }
            Self::Rest { .. } => match reply.status.as_u16() {
                401 => {
                    assert_eq!(
                        (reply.header("www-authenticate"), reply.reason().as_str()),
                        (Some("Bearer"), "UNAUTHENTICATED")
                    );
                    Some((
                        "unauthenticated",
                        reply.json()["detail"].as_str().unwrap().to_owned(),
                    ))
                }
                403 => {
                    assert_eq!(reply.reason(), "SCOPE_MISSING");
                    Some((
                        "denied",
                        reply.json()["detail"].as_str().unwrap().to_owned(),
                    ))
                }
                _ => None,
            },
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_refuses_callers_without_a_right_to_it() {
    check_every_operation(&Service::start_with(&["--auth=keys"]).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_refuses_callers_without_a_right_to_it_on_postgresql() {
    let Some(database) = TestDatabase::empty().await else {
        return;
    };
    let string = format!("--postgresql-connection-string={}", database.url());
    check_every_operation(
        &Service::start_with(&["--auth=keys", "--storage-backend=postgresql", &string]).await,
    )
    .await;
}

async fn check_every_operation(service: &Service) {
    let revoked = service
        .key("default", &["read", "write", "delete", "manage"])
        .await;
    let command = context_engine::Admin::RevokeKey {
        owner: "default".to_owned(),
        key_id: revoked.id.clone(),
    };
    service.engine.access.administer(command).await.unwrap();
    let expired = service.key_with("default", &["read"], soon()).await;
    until("the key has expired", async || {
        let request = service
            .get("/v1/threads")
            .header("authorization", &expired.text);
        request.send().await.status == 401
    })
    .await;
    let mut scoped = Vec::new();
    for scope in Scope::ALL {
        scoped.push((scope, service.key("default", &[scope.as_str()]).await.text));
    }
    let narrowed = |only: &str| CreateApiKeyRequest {
        only: Some(only.to_owned()),
        ..CreateApiKeyRequest::default()
    };
    let everything = ["read", "write", "delete", "manage"];
    let only_contexts = service
        .key_with("default", &everything, narrowed("contexts"))
        .await
        .text;
    let only_artifacts = service
        .key_with("default", &everything, narrowed("artifacts"))
        .await
        .text;
    let threads = CreateApiKeyRequest {
        threads: Some(vec!["one".to_owned()]),
        ..CreateApiKeyRequest::default()
    };
    let only_threads = service.key_with("default", &everything, threads).await.text;
    let other = service.key("other", &everything).await.text;
    let good = service
        .first_key
        .clone()
        .expect("the first start makes a key");

    let unknown = format!("Bearer sk_prod_{}", "x".repeat(32));
    // Differs from an existing key only in its last character, which shows that the whole key is compared.
    let near = format!(
        "{}{}",
        &good[..39],
        if good.ends_with('A') { 'B' } else { 'A' }
    );
    let without_credentials = [
        None,
        Some(""),
        Some("Bearer"),
        Some("Bearer nonsense"),
        Some("Basic c2s6cHJvZA=="),
        Some(unknown.as_str()),
        Some(near.as_str()),
        Some(revoked.text.as_str()),
        Some(expired.text.as_str()),
    ];
    let mut failures = Vec::new();
    for (operation, call) in operations() {
        let transport = if matches!(call, Call::Grpc { .. }) {
            "gRPC"
        } else {
            "REST"
        };
        let mut expect = |what: &str,
                          found: Option<(&'static str, String)>,
                          expected: Option<(&'static str, String)>| {
            if found != expected {
                failures.push(format!(
                    "{operation} over {transport} with {what}: expected {expected:?}, got {found:?}"
                ));
            }
        };
        for authorization in without_credentials {
            let found = call.refusal(service, authorization).await;
            expect(
                &format!("{authorization:?}"),
                found,
                Some(("unauthenticated", REQUIRED.to_owned())),
            );
        }
        for value in [
            good.clone(),
            format!("Bearer {good}"),
            format!("bearer  {good}"),
            other.clone(),
        ] {
            expect(
                "every scope",
                call.refusal(service, Some(&value)).await,
                None,
            );
        }
        let Some(needed) = scope(&operation) else {
            continue;
        };
        let missing = || {
            (
                "denied",
                format!(
                    "this operation needs the scope `{}`, which the credentials do not carry",
                    needed.as_str()
                ),
            )
        };
        for (scope, key) in &scoped {
            let expected = (*scope != needed).then(missing);
            expect(
                &format!("the scope {}", scope.as_str()),
                call.refusal(service, Some(key)).await,
                expected,
            );
        }
        for (only, key) in [
            ("contexts", &only_contexts),
            ("artifacts", &only_artifacts),
            ("contexts", &only_threads),
        ] {
            let sentence =
                format!("the credentials are narrowed to {only} and do not reach this operation");
            // Every key sees the changes of what it reaches.
            let is_reached = resource_of(&operation) == only
                || operation.contains("changes")
                || operation == "watch";
            let expected = (needed == Scope::Manage || !is_reached).then_some(("denied", sentence));
            expect(
                &format!("a key for {only}"),
                call.refusal(service, Some(key)).await,
                expected,
            );
        }
    }
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_owner_has_is_not_found_under_its_id() {
    let service = Service::start_with(&["--auth=keys"]).await;
    let mine = format!(
        "Bearer {}",
        service
            .first_key
            .as_ref()
            .expect("the first start makes a key")
    );
    let theirs = service
        .key("other", &["read", "write", "delete", "manage"])
        .await;
    let entry = serde_json::json!({"thread_id": "t", "source": "user", "text": "canary"});
    assert_eq!(
        service
            .post("/v1/contexts", entry)
            .header("authorization", &mine)
            .send()
            .await
            .json()["context_id"],
        1
    );
    let artifact = serde_json::json!({"content": "# Canary", "path": "/p"});
    let created = service
        .post("/v1/artifacts", artifact)
        .header("authorization", &mine)
        .send()
        .await
        .json();
    let artifact = created["id"].as_str().expect("an id");
    let mut checked = 0;
    for (operation, call) in operations() {
        let Call::Rest { method, path } = call else {
            continue;
        };
        let path = path.replace(
            "/v1/artifacts/123e4567-e89b-12d3-a456-426614174000",
            &format!("/v1/artifacts/{artifact}"),
        );
        let path = match operation.as_str() {
            "diff_artifact_versions" => format!("{path}?from_version=1&to_version=1"),
            "get_artifact_by_path" => format!("{path}?path=/p"),
            _ => path,
        };
        let has_id = ["/contexts/1", "/threads/t", artifact, "?path=/p"];
        if !has_id.iter().any(|id| path.contains(id)) {
            continue;
        }
        checked += 1;
        let body = match operation.as_str() {
            "update_context" => serde_json::json!({"text": "changed"}),
            "update_artifact" => serde_json::json!({"content": "changed"}),
            _ => serde_json::json!({}),
        };
        let request = service.request(&method, &path);
        let request = if matches!(method.as_str(), "POST" | "PATCH") {
            request.json(&body)
        } else {
            request
        };
        let reply = request.header("authorization", &theirs.text).send().await;
        // Deleting a context is documented to say that nothing was deleted.
        let nothing = operation.starts_with("delete_context") && reply.json()["deleted_count"] == 0;
        assert!(
            nothing || reply.status == 404,
            "{operation}: {} {}",
            reply.status,
            reply.body
        );
        assert!(
            !reply.body.to_lowercase().contains("canary"),
            "{operation}: {}",
            reply.body
        );
    }
    assert!(checked >= 12, "{checked} operations have an id");
    for path in [
        "/v1/contexts/1".to_owned(),
        format!("/v1/artifacts/{artifact}"),
        "/v1/artifacts/by-path?path=/p".to_owned(),
    ] {
        assert!(
            service
                .get(&path)
                .header("authorization", &mine)
                .send()
                .await
                .body
                .to_lowercase()
                .contains("canary"),
            "{path}"
        );
    }
}

/// An expiry that is imminent, but later than the key's creation.
fn soon() -> CreateApiKeyRequest {
    CreateApiKeyRequest {
        expires_at: Some(from_now(Duration::from_millis(1_500)).to_string()),
        ..CreateApiKeyRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_key_is_not_replaced_by_one_that_has_expired_too() {
    let service = Service::start_with(&["--auth=keys"]).await;
    let key = service.key_with("default", &["read"], soon()).await;
    until("the key has expired", async || {
        let request = service
            .get("/v1/threads")
            .header("authorization", &key.text);
        request.send().await.status == 401
    })
    .await;
    let command = context_engine::Admin::RotateKey {
        owner: "default".to_owned(),
        key_id: key.id,
    };
    let refused = service.engine.access.administer(command).await.unwrap_err();
    assert_eq!(refused.reason, Reason::InvalidArgument);
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_without_data_of_an_owner_need_no_key() {
    let service = Service::start_with(&["--auth=keys"]).await;
    for path in [
        "/",
        "/ui/app.js",
        "/healthz",
        "/readyz",
        "/openapi.json",
        "/metrics",
        "/docs/",
    ] {
        let status = service.get(path).send().await.status;
        assert!(
            status.is_success() || status.is_redirection(),
            "{path}: {status}"
        );
    }
    let two = service
        .get("/v1/threads")
        .header("authorization", service.first_key.as_ref().unwrap())
        .header("authorization", "x");
    assert_eq!(
        two.send().await.status,
        401,
        "a request with two credentials is not authenticated"
    );
}
