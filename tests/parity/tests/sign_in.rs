//! Signing in to the page: the code of an issuer becomes a token that works like any other.

use context_parity::keys::KeyedService;
use context_test_issuer::{Key, SignIn, TestIssuer, claims, with};
use context_test_support::http::{Reply, Request};
use serde_json::{Value, json};

const CLIENT: &str = "page";
const REDIRECT: &str = "https://context.example/memory/";
/// A verifier and its hash, from RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const HASH: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

async fn sign_in_url(service: &KeyedService) -> Value {
    let reply = Request::get(service.address(), "/ui/sign-in").send().await;
    assert_eq!(reply.status.as_u16(), 200, "{}", reply.body);
    reply.json()["url"].clone()
}

async fn exchange(service: &KeyedService, body: &Value) -> Reply {
    Request::post(service.address(), "/ui/sign-in", body)
        .send()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_who_signs_in_gets_a_token_that_works() {
    let key = Key::ec("k");
    let issuer = TestIssuer::start(&[&key]).await;
    let settings = [
        ("AUTH", "oidc"),
        ("OIDC_ISSUER", issuer.url()),
        ("OIDC_AUDIENCE", CLIENT),
        ("OIDC_CLIENT_ID", CLIENT),
        ("OIDC_REDIRECT_URL", REDIRECT),
        ("OIDC_CLIENT_SCOPES", "openid profile"),
    ];
    let service = KeyedService::start_with(&settings).await;
    let person = claims(issuer.url(), CLIENT, "alice");
    issuer.sign_in(SignIn {
        client: CLIENT.to_owned(),
        secret: None,
        redirect: REDIRECT.to_owned(),
        access_token: "opaque".to_owned(),
        id_token: Box::new(move |nonce| key.token(&with(person.clone(), json!({"nonce": nonce})))),
    });

    let url = sign_in_url(&service).await;
    let url = url.as_str().expect("an address");
    assert!(url.contains("scope=openid+profile"), "{url}");
    let authorization = format!("{url}&state=s&code_challenge={HASH}&nonce={HASH}");
    let code = async || {
        let redirect = Request::new("GET", authorization.clone()).send().await;
        let code = redirect
            .header("location")
            .and_then(|back| back.strip_prefix(REDIRECT)?.strip_prefix("?code="))
            .and_then(|query| query.strip_suffix("&state=s"));
        code.expect("a code").to_owned()
    };

    // A code that was stolen is useless without the verifier of its sign-in.
    let stolen = json!({"code": code().await, "verifier": "x".repeat(43)});
    let refused = exchange(&service, &stolen).await;
    assert_eq!(
        (refused.status.as_u16(), refused.reason().as_str()),
        (401, "UNAUTHENTICATED")
    );
    let code = code().await;
    let body = json!({"code": code, "verifier": VERIFIER});
    let reply = exchange(&service, &body).await;
    assert_eq!(reply.status.as_u16(), 200, "{}", reply.body);
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.header("access-control-allow-origin"), None);
    let token = reply.json()["token"].as_str().expect("a token").to_owned();
    let bearer = format!("Bearer {token}");
    assert_eq!(service.rest(Some(&bearer)).await.status, 200);

    let again = exchange(&service, &body).await;
    assert_eq!(
        (again.status.as_u16(), again.reason().as_str()),
        (401, "UNAUTHENTICATED")
    );
    for wrong in [
        json!({"code": "x".repeat(20_000), "verifier": VERIFIER}),
        json!({"code": code}),
        json!({"code": code, "verifier": VERIFIER, "redirect_uri": "https://evil.example/"}),
    ] {
        let reply = exchange(&service, &wrong).await;
        assert_eq!(
            (reply.status.as_u16(), reply.reason().as_str()),
            (400, "INVALID_ARGUMENT")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_client_the_page_asks_for_a_key() {
    let service = KeyedService::start().await;
    assert_eq!(sign_in_url(&service).await, Value::Null);
    let body = json!({"code": "code", "verifier": VERIFIER});
    let reply = exchange(&service, &body).await;
    assert_eq!(
        (reply.status.as_u16(), reply.reason().as_str()),
        (409, "FEATURE_UNAVAILABLE")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_that_is_not_sent_as_json_is_refused() {
    let service = KeyedService::start().await;
    // A page of another site can make a browser send this without asking for permission.
    let url = format!("http://{}/ui/sign-in", service.address());
    let reply = Request::new("POST", url)
        .header("content-type", "text/plain")
        .body(json!({"code": "code", "verifier": VERIFIER}).to_string())
        .send()
        .await;
    assert_eq!(
        (reply.status.as_u16(), reply.reason().as_str()),
        (415, "UNSUPPORTED_MEDIA_TYPE")
    );
}
