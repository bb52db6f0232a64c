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
use serde_json::{Value, json};

const AUDIENCE: &str = "context";
const CLIENT: &str = "the page";
const REDIRECT: &str = "http://127.0.0.1:7420/memory/";
/// The secret has characters that must be escaped in a form.
const SECRET: &str = "s3 cret+&=%";
const VERIFIER: &str = "a-verifier-of-the-length-that-RFC-7636-demands";

#[expect(clippy::disallowed_methods, reason = "a moment to count from")]
fn moment() -> Now {
    Now {
        unix_seconds: now(),
        instant: Instant::now(),
    }
}

/// A test issuer with its key, and the service's client of that issuer.
struct Scene {
    server: TestIssuer,
    key: Arc<Key>,
    issuer: Arc<Issuer>,
}

impl Scene {
    async fn new(secret: Option<&str>) -> Self {
        let key = Arc::new(Key::ec("k"));
        let server = TestIssuer::start(&[&key]).await;
        let issuer = issuer(&server, secret);
        let scene = Self {
            server,
            key,
            issuer,
        };
        scene.sign_in(secret, "opaque".to_owned(), json!({}));
        scene
    }

    /// Makes the issuer return this access token for later sign-ins, and an ID token with these changes to its claims.
    fn sign_in(&self, secret: Option<&str>, access_token: String, changes: Value) {
        let (key, url) = (self.key.clone(), self.server.url().to_owned());
        self.server.sign_in(SignIn {
            client: CLIENT.to_owned(),
            secret: secret.map(str::to_owned),
            redirect: REDIRECT.to_owned(),
            access_token,
            id_token: Box::new(move |nonce| {
                let claims = with(claims(&url, CLIENT, "alice"), json!({"nonce": nonce}));
                key.token(&with(claims, changes.clone()))
            }),
        });
    }

    /// Opens the issuer's authorization page as the browser does, and returns the code from its redirect.
    async fn code(&self) -> String {
        let url = self.issuer.authorization_url(moment().instant).await;
        let mut url = Url::parse(&url.expect("the issuer is there")).expect("an address");
        let challenge = challenge();
        url.query_pairs_mut().extend_pairs([
            ("state", "some-state"),
            ("code_challenge", &challenge),
            ("nonce", &challenge),
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

    async fn exchange(&self, code: &str, verifier: &str) -> Result<String, SignInError> {
        self.issuer.exchange(code, verifier, moment()).await
    }
}

fn challenge() -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, VERIFIER.as_bytes()))
}

fn issuer(server: &TestIssuer, secret: Option<&str>) -> Arc<Issuer> {
    let audiences = vec![AUDIENCE.to_owned(), CLIENT.to_owned()];
    let settings = Settings {
        client: Some(Client {
            id: CLIENT.to_owned(),
            secret: secret.map(|secret| Secret::new(secret.to_owned())),
            redirect_url: REDIRECT.to_owned(),
            scopes: "openid read".to_owned(),
        }),
        ..Settings::new(server.url(), audiences)
    };
    Arc::new(Issuer::new(settings).expect("good settings"))
}

/// Why a sign-in was refused.
fn why(outcome: Result<String, SignInError>) -> String {
    match outcome {
        Err(SignInError::Refused(why)) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_code_is_exchanged_once_for_the_access_token_that_the_service_accepts() {
    let scene = Scene::new(None).await;
    let claims = claims(scene.server.url(), AUDIENCE, "alice");
    let token = scene.key.token(&claims);
    scene.sign_in(None, token.clone(), json!({}));
    let code = scene.code().await;
    assert_eq!(scene.exchange(&code, VERIFIER).await, Ok(token));
    let again = why(scene.exchange(&code, VERIFIER).await);
    assert!(again.contains("status 400"), "{again}");
}

/// The service uses the ID token when it does not accept the access token, for example one for another service.
#[tokio::test]
async fn the_id_token_stands_in_for_an_access_token_that_is_not_accepted() {
    let scene = Scene::new(Some(SECRET)).await;
    let url = scene.server.url();
    let foreign = scene.key.token(&claims(url, "another service", "alice"));
    let forged = Key::ec("k").token(&claims(url, AUDIENCE, "mallory"));
    let nonce = json!({"nonce": challenge()});
    let id_claims = with(claims(url, CLIENT, "alice"), nonce);
    for access_token in ["opaque".to_owned(), foreign, forged] {
        scene.sign_in(Some(SECRET), access_token.clone(), json!({}));
        let code = scene.code().await;
        let token = scene.exchange(&code, VERIFIER).await.expect("a token");
        assert_ne!(token, access_token);
        let claims = token.split('.').nth(1).expect("claims");
        let claims = URL_SAFE_NO_PAD.decode(claims).expect("base64");
        let mut claims: Value = serde_json::from_slice(&claims).expect("JSON");
        // The clock may have ticked since the token was issued.
        for time in ["iat", "exp"] {
            claims[time] = id_claims[time].clone();
        }
        assert_eq!(claims, id_claims);
    }
}

#[tokio::test]
async fn a_code_needs_its_verifier_and_the_secret_and_expires() {
    let scene = Scene::new(Some(SECRET)).await;
    let stolen = scene.code().await;
    let another = VERIFIER.replace('a', "b");
    let refused = why(scene.exchange(&stolen, &another).await);
    assert!(refused.contains("status 400"), "{refused}");

    let code = scene.code().await;
    let without = issuer(&scene.server, None);
    let refused = why(without.exchange(&code, VERIFIER, moment()).await);
    assert!(refused.contains("status 400"), "{refused}");

    let expired = scene.code().await;
    scene.sign_in(Some(SECRET), "opaque".to_owned(), json!({}));
    let refused = why(scene.exchange(&expired, VERIFIER).await);
    assert!(refused.contains("status 400"), "{refused}");

    let code = scene.code().await;
    // One character beyond each limit.
    let (long, short) = ("x".repeat(4097), &VERIFIER[..42]);
    for (code, verifier) in [(&*long, VERIFIER), (&code, &long[..129]), (&code, short)] {
        let refused = why(scene.exchange(code, verifier).await);
        assert!(refused.contains("wrong length"), "{refused}");
    }
    // At each limit the issuer decides.
    for verifier in [&long[..128], &VERIFIER[..43]] {
        let refused = why(scene.exchange(&long[..4096], verifier).await);
        assert!(refused.contains("status 400"), "{refused}");
    }
    assert!(scene.exchange(&code, VERIFIER).await.is_ok());
}

#[tokio::test]
async fn an_id_token_of_another_sign_in_client_issuer_or_time_is_refused() {
    let scene = Scene::new(None).await;
    for (changes, sentence) in [
        (json!({"nonce": "another"}), "another sign-in"),
        (json!({"nonce": null}), "another sign-in"),
        (json!({"nonce": [challenge()]}), "another sign-in"),
        // The service accepts tokens for this audience, but this is no token for the page.
        (json!({"aud": AUDIENCE}), "another audience"),
        (
            json!({"aud": [CLIENT, AUDIENCE], "azp": "another"}),
            "another client",
        ),
        (json!({"exp": now() - 120}), "expired"),
        (json!({"iss": "https://other.example"}), "another issuer"),
    ] {
        // A valid access token does not make up for an invalid ID token.
        let token = scene
            .key
            .token(&claims(scene.server.url(), AUDIENCE, "alice"));
        scene.sign_in(None, token, changes.clone());
        let code = scene.code().await;
        let refused = why(scene.exchange(&code, VERIFIER).await);
        assert!(refused.contains(sentence), "{changes}: {refused}");
    }
}

#[tokio::test]
async fn an_id_token_with_a_forged_signature_is_refused() {
    let scene = Scene::new(None).await;
    let code = scene.code().await;
    // The issuer replaces its keys before the service has fetched any.
    scene.server.publish(&[&Key::ec("k")]);
    let other = issuer(&scene.server, None);
    let refused = why(other.exchange(&code, VERIFIER, moment()).await);
    assert!(refused.contains("signature is wrong"), "{refused}");
}

#[tokio::test]
async fn an_id_token_for_a_client_that_is_no_audience_is_not_handed_out() {
    let scene = Scene::new(None).await;
    let mut settings = scene.issuer.settings().clone();
    settings.audiences = vec![AUDIENCE.to_owned()];
    let strict = Arc::new(Issuer::new(settings).expect("good settings"));
    let code = scene.code().await;
    let refused = why(strict.exchange(&code, VERIFIER, moment()).await);
    assert!(refused.contains("another audience"), "{refused}");
}

/// Anyone can send forged codes, so their number is limited. A successful sign-in does not count towards the limit.
#[tokio::test]
async fn forged_codes_reach_the_issuer_twenty_times_in_a_row() {
    let scene = Scene::new(None).await;
    for _ in 0..3 {
        let code = scene.code().await;
        assert!(scene.exchange(&code, VERIFIER).await.is_ok());
    }
    let began = moment();
    let forged = || scene.issuer.exchange("forged", VERIFIER, began);
    for _ in 0..20 {
        assert!(why(forged().await).contains("status 400"));
    }
    assert_eq!(forged().await, Err(SignInError::TooMany));
    let code = scene.code().await;
    let later = Now {
        instant: began.instant + Duration::from_secs(1),
        ..began
    };
    assert!(scene.issuer.exchange(&code, VERIFIER, later).await.is_ok());
}

#[tokio::test]
async fn without_a_client_or_an_issuer_nobody_signs_in() {
    let scene = Scene::new(None).await;
    let url = scene.server.url();
    let off = Settings::new(url, vec![AUDIENCE.to_owned()]);
    let off = Arc::new(Issuer::new(off).expect("good settings"));
    let outcome = off.authorization_url(moment().instant).await;
    assert_eq!(outcome, Err(SignInError::Off));
    let outcome = off.exchange("code", VERIFIER, moment()).await;
    assert_eq!(outcome, Err(SignInError::Off));
    for discovery in [
        json!({"issuer": "http://other.example", "jwks_uri": format!("{url}/keys"),
            "authorization_endpoint": url, "token_endpoint": url}),
        json!({"issuer": url, "jwks_uri": format!("{url}/keys")}),
        json!({"issuer": url, "jwks_uri": format!("{url}/keys"),
            "authorization_endpoint": "javascript:alert(1)", "token_endpoint": url}),
        json!({"issuer": url, "jwks_uri": format!("{url}/keys"),
            "authorization_endpoint": "http://evil.example/", "token_endpoint": url}),
    ] {
        scene.server.describe(discovery.clone());
        let issuer = issuer(&scene.server, None);
        let outcome = issuer.authorization_url(moment().instant).await;
        assert_eq!(outcome, Err(SignInError::Unavailable), "{discovery}");
    }
}
