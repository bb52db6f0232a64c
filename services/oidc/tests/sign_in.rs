//! Signing in with a browser, against an issuer over HTTP.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use context_model::Secret;
use context_oidc::{Client, Issuer, Now, Settings, SignInError};
use context_test_issuer::{Key, SignIn, TestIssuer, claims, now, with};
use reqwest::Url;
use ring::digest::{SHA256, digest};
use serde_json::json;

const AUDIENCE: &str = "context";
const REDIRECT: &str = "http://127.0.0.1:7420/memory/";
/// Characters that a form escapes.
const SECRET: &str = "s3 cret+&=%";

#[expect(clippy::disallowed_methods, reason = "a moment to count from")]
fn moment() -> Now {
    Now {
        unix_seconds: now(),
        instant: Instant::now(),
    }
}

fn issuer(server: &TestIssuer, secret: Option<&str>) -> Arc<Issuer> {
    let settings = Settings {
        client: Some(Client {
            id: "the page".to_owned(),
            secret: secret.map(|secret| Secret::new(secret.to_owned())),
            redirect_url: REDIRECT.to_owned(),
            scopes: "openid read".to_owned(),
        }),
        ..Settings::new(server.url(), vec![AUDIENCE.to_owned()])
    };
    Arc::new(Issuer::new(settings).expect("good settings"))
}

fn sign_in(secret: Option<&str>, name: &'static str, token: String) -> SignIn {
    SignIn {
        client: "the page".to_owned(),
        // The issuer compares what is sent, and that is form-encoded.
        secret: secret.map(|_| "s3+cret%2B%26%3D%25".to_owned()),
        redirect: REDIRECT.to_owned(),
        name,
        token,
    }
}

/// Goes to the issuer as the page does, and returns the code that it sends back.
async fn code(issuer: &Issuer, verifier: &str) -> String {
    let url = issuer.authorization_url(moment().instant).await;
    let mut url = Url::parse(&url.expect("the issuer is there")).expect("an address");
    let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
    url.query_pairs_mut().extend_pairs([
        ("state", "some-state"),
        ("code_challenge", challenge.as_str()),
        ("code_challenge_method", "S256"),
    ]);
    let client = context_http::builder()
        .timeout(Duration::from_secs(10))
        .build()
        .expect("a client");
    let reply = client.get(url).send().await.expect("a reply");
    assert_eq!(reply.status().as_u16(), 302);
    let back = reply.headers()["location"].to_str().expect("an address");
    let query = back.strip_prefix(REDIRECT).expect("the page's address");
    query
        .strip_prefix("?code=")
        .and_then(|query| query.strip_suffix("&state=some-state"))
        .expect("a code and the state")
        .to_owned()
}

fn is_refused(outcome: &Result<String, SignInError>) -> bool {
    matches!(outcome, Err(SignInError::Refused(_)))
}

/// The ID token is used where the access token is one that only the issuer can read.
#[tokio::test]
async fn a_code_is_exchanged_for_a_token_that_the_service_accepts() {
    for (secret, name) in [
        (None, "access_token"),
        (None, "id_token"),
        (Some(SECRET), "id_token"),
    ] {
        let key = Key::ec("k");
        let server = TestIssuer::start(&[&key]).await;
        let token = key.token(&claims(server.url(), AUDIENCE, "alice"));
        server.sign_in(sign_in(secret, name, token.clone()));
        let issuer = issuer(&server, secret);
        let code = code(&issuer, "verifier").await;
        let exchanged = issuer.exchange(&code, "verifier", moment()).await;
        assert_eq!(exchanged, Ok(token));
        let again = issuer.exchange(&code, "verifier", moment()).await;
        assert!(is_refused(&again), "{again:?}");
    }
}

#[tokio::test]
async fn a_code_without_its_verifier_or_secret_gives_no_token() {
    let key = Key::ec("k");
    let server = TestIssuer::start(&[&key]).await;
    let token = key.token(&claims(server.url(), AUDIENCE, "alice"));
    server.sign_in(sign_in(Some(SECRET), "id_token", token));
    let with_secret = issuer(&server, Some(SECRET));
    let stolen = code(&with_secret, "verifier").await;
    let outcome = with_secret.exchange(&stolen, "another", moment()).await;
    assert!(is_refused(&outcome), "{outcome:?}");
    let without = issuer(&server, None);
    let code = code(&without, "verifier").await;
    let outcome = without.exchange(&code, "verifier", moment()).await;
    assert!(is_refused(&outcome), "{outcome:?}");
    let long = "x".repeat(5000);
    let outcome = without.exchange(&long, "verifier", moment()).await;
    assert!(is_refused(&outcome), "{outcome:?}");
}

#[tokio::test]
async fn a_token_for_another_service_is_not_handed_out() {
    let key = Key::ec("k");
    let server = TestIssuer::start(&[&key]).await;
    let claims = with(
        claims(server.url(), AUDIENCE, "alice"),
        json!({"aud": "another service"}),
    );
    server.sign_in(sign_in(None, "id_token", key.token(&claims)));
    let issuer = issuer(&server, None);
    let code = code(&issuer, "verifier").await;
    let outcome = issuer.exchange(&code, "verifier", moment()).await;
    assert!(is_refused(&outcome), "{outcome:?}");
}

#[tokio::test]
async fn without_a_client_or_an_issuer_nobody_signs_in() {
    let key = Key::ec("k");
    let server = TestIssuer::start(&[&key]).await;
    let off = Arc::new(
        Issuer::new(Settings::new(server.url(), vec![AUDIENCE.to_owned()])).expect("settings"),
    );
    let outcome = off.authorization_url(moment().instant).await;
    assert_eq!(outcome, Err(SignInError::Off));
    let issuer = issuer(&server, None);
    server.describe(
        json!({"issuer": "http://other.example", "authorization_endpoint": server.url(),
        "token_endpoint": server.url()}),
    );
    for _ in 0..2 {
        let outcome = issuer.authorization_url(moment().instant).await;
        assert!(
            matches!(outcome, Err(SignInError::Unavailable { .. })),
            "{outcome:?}"
        );
    }
}
