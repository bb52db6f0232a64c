//! An issuer's tokens on each transport. Valid tokens are accepted. Every transport rejects an invalid token with the
//! same message, whatever is wrong with it.

use std::time::Duration;

use context_parity::keys::{Gateway, KeyedService};
use context_test_issuer::{Key, TestIssuer, claims, hs256, now, unsigned, with};
use context_test_support::until;
use serde_json::{Value, json};
use tonic::Code;

const AUDIENCE: &str = "https://context.example/mcp";
const REQUIRED: &str = "Authentication required. Please provide a valid API key.";

/// Starts a service and a gateway that accept this issuer's tokens.
async fn clients(issuer: &TestIssuer, more: &[(&str, &str)]) -> (KeyedService, Gateway) {
    let mut settings = vec![
        ("AUTH", "oidc"),
        ("OIDC_ISSUER", issuer.url()),
        ("OIDC_AUDIENCE", AUDIENCE),
    ];
    settings.extend(more);
    let service = KeyedService::start_with(&settings).await;
    let gateway = Gateway::http_with(&service, &settings).await;
    (service, gateway)
}

/// Checks that every transport rejects this token with the same message.
async fn assert_refused(service: &KeyedService, gateway: &Gateway, what: &str, token: &str) {
    let bearer = format!("Bearer {token}");
    let rest = service.rest(Some(&bearer)).await;
    assert_eq!(
        (rest.status, rest.challenge.as_str()),
        (401, "Bearer"),
        "{what}"
    );
    assert_eq!(
        (&rest.body["detail"], &rest.body["reason"]),
        (&json!(REQUIRED), &json!("UNAUTHENTICATED")),
        "{what}"
    );
    let status = service.grpc(Some(&bearer)).await.expect_err(what);
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unauthenticated, REQUIRED),
        "{what}"
    );
    let mcp = gateway.call("list_threads", Some(&bearer)).await;
    assert_eq!(
        (mcp.status, &mcp.body),
        (401, &json!({ "error": REQUIRED })),
        "{what}"
    );
    assert!(
        mcp.challenge.contains("error=\"invalid_token\"")
            && mcp.challenge.contains("resource_metadata="),
        "{}",
        mcp.challenge
    );
}

/// Waits until the gateway checks this token with the service again and refuses it, which takes a second at most.
async fn wait_for_refusal(gateway: &Gateway, token: &str) {
    let bearer = format!("Bearer {token}");
    let refused = until("the token is refused", async || {
        gateway.call("list_threads", Some(&bearer)).await.status == 401
    });
    tokio::time::timeout(Duration::from_secs(10), refused)
        .await
        .expect("a refusal in time");
}

/// Checks that every transport accepts this token.
async fn assert_accepted(service: &KeyedService, gateway: &Gateway, what: &str, token: &str) {
    let bearer = format!("Bearer {token}");
    let rest = service.rest(Some(&bearer)).await;
    assert_eq!(rest.status, 200, "{what}: {}", rest.body);
    service.grpc(Some(&bearer)).await.expect(what);
    let mcp = gateway.call("list_threads", Some(&bearer)).await;
    assert!(
        mcp.status == 200 && mcp.body["result"]["isError"] != true,
        "{what}: {}",
        mcp.body
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_transport_accepts_good_tokens_and_refuses_bad_ones() {
    let (rsa, ec) = (Key::rsa("rsa"), Key::ec("ec"));
    let issuer = TestIssuer::start(&[&rsa, &ec]).await;
    let (service, gateway) = clients(&issuer, &[]).await;
    let good = claims(issuer.url(), AUDIENCE, "alice");
    assert_accepted(&service, &gateway, "RS256", &rsa.token(&good)).await;
    assert_accepted(&service, &gateway, "ES256", &ec.token(&good)).await;
    assert_accepted(
        &service,
        &gateway,
        "an API key",
        &service.key("key", &["read"]).await,
    )
    .await;

    let modulus = rsa.public()["n"].as_str().expect("a modulus").to_owned();
    for key in [&rsa, &ec] {
        let changed = |changes: Value| key.token(&with(good.clone(), changes));
        for (what, token) in [
            (
                "a wrong issuer",
                changed(json!({"iss": "https://accounts.example"})),
            ),
            (
                "a wrong audience",
                changed(json!({"aud": "https://other.example"})),
            ),
            ("an expired token", changed(json!({"exp": now() - 120}))),
            (
                "a token of tomorrow",
                changed(json!({"nbf": now() + 86_400})),
            ),
        ] {
            assert_refused(&service, &gateway, what, &token).await;
        }
    }
    for (what, token) in [
        ("a wrong RSA key", Key::other_rsa("rsa").token(&good)),
        ("a wrong curve key", Key::ec("ec").token(&good)),
        ("no algorithm", unsigned("none", &good)),
        (
            "a public key as secret",
            hs256(modulus.as_bytes(), "rsa", &good),
        ),
        ("nonsense", "a.b.c".to_owned()),
    ] {
        assert_refused(&service, &gateway, what, &token).await;
    }

    let new = Key::ec("new");
    issuer.publish(&[&new]);
    assert_accepted(&service, &gateway, "a rotated key", &new.token(&good)).await;
    let before = rsa.token(&good);
    wait_for_refusal(&gateway, &before).await;
    assert_refused(&service, &gateway, "the key before", &before).await;
    assert_refused(
        &service,
        &gateway,
        "an unknown key",
        &Key::ec("unknown").token(&good),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_without_readable_keys_accepts_no_token_and_an_unreachable_one_is_reported() {
    let key = Key::rsa("rsa");
    let issuer = TestIssuer::start(&[&key]).await;
    let token = key.token(&claims(issuer.url(), AUDIENCE, "alice"));
    let bearer = format!("Bearer {token}");
    for (status, page) in [(200, "{\"keys\": \"none\"}"), (503, "")] {
        issuer.respond(status, page);
        let (service, gateway) = clients(&issuer, &[]).await;
        let rest = service.rest(Some(&bearer)).await;
        assert_eq!(
            (rest.status, &rest.body["reason"]),
            (503, &json!("ISSUER_UNAVAILABLE")),
            "{status}"
        );
        assert_eq!(
            service
                .grpc(Some(&bearer))
                .await
                .expect_err("it cannot be verified")
                .code(),
            Code::Unavailable,
            "{status}"
        );
        let mcp = gateway.call("list_threads", Some(&bearer)).await;
        assert!(
            mcp.status == 200
                && mcp.body["result"]["isError"] == true
                && mcp.text().contains("ISSUER_UNAVAILABLE"),
            "{status}: {}",
            mcp.body
        );
        assert_accepted(
            &service,
            &gateway,
            "an API key",
            &service.key("key", &["read"]).await,
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_learn_who_gives_tokens_and_under_which_names() {
    let key = Key::rsa("rsa");
    let issuer = TestIssuer::start(&[&key]).await;
    let (_service, gateway) = clients(&issuer, &[("OIDC_SCOPE_PREFIX", "context.")]).await;
    let metadata = gateway
        .get("/.well-known/oauth-protected-resource/mcp")
        .await;
    assert_eq!(metadata["authorization_servers"], json!([issuer.url()]));
    assert_eq!(
        metadata["scopes_supported"],
        json!(["context.read", "context.write", "context.delete"])
    );
    let challenge = gateway.call("list_threads", None).await.challenge;
    assert!(
        challenge.contains("scope=\"context.read context.write context.delete\""),
        "{challenge}"
    );
    let reader = with(
        claims(issuer.url(), AUDIENCE, "alice"),
        json!({"scope": "context.read write"}),
    );
    let reply = gateway
        .call(
            "store_context",
            Some(&format!("Bearer {}", key.token(&reader))),
        )
        .await;
    assert_eq!(reply.status, 403);
    assert!(
        reply
            .challenge
            .contains("error=\"insufficient_scope\", scope=\"context.write\""),
        "{}",
        reply.challenge
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holders_of_tokens_have_owners_of_their_own_and_stdio_takes_new_tokens_from_its_file() {
    let key = Key::ec("ec");
    let issuer = TestIssuer::start(&[&key]).await;
    let (service, _gateway) = clients(&issuer, &[]).await;
    let token = |subject: &str| key.token(&claims(issuer.url(), AUDIENCE, subject));
    let file = service.file("token", &token("alice"));
    let mut gateway = Gateway::stdio(&service, &[("CONTEXT_API_KEY_FILE", file)]).await;
    let entry = json!({"thread_id": "t", "source": "user", "text": "Alice's"});
    assert_eq!(
        gateway.call("store_context", &entry).await["isError"],
        false
    );
    let threads = |reply: Value| reply["structuredContent"]["total_threads"].clone();
    assert_eq!(
        threads(gateway.call("list_threads", &json!({})).await),
        json!(1)
    );
    // Another holder sees nothing. Neither does the owner whose name equals the subject.
    service.file("token", &token("default"));
    until("the new token is used", async || {
        threads(gateway.call("list_threads", &json!({})).await) == json!(0)
    })
    .await;
    let default = service.key("key", &["read"]).await;
    assert_eq!(
        service.rest(Some(&default)).await.body["total_threads"],
        json!(0)
    );
    service.file("token", &token("alice"));
    until("the first token is used again", async || {
        threads(gateway.call("list_threads", &json!({})).await) == json!(1)
    })
    .await;
}
