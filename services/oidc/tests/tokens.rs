//! Tokens with real signatures, verified with the keys of an issuer over HTTP.

use std::sync::Arc;
use std::time::{Duration, Instant};

use context_oidc::{Issuer, Now, Settings, TokenError, Verified};
use context_test_issuer::{Key, TestIssuer, claims, hs256, now, unsigned, with};
use serde_json::{Value, json};

const AUDIENCE: &str = "context";

fn issuer(server: &TestIssuer) -> Arc<Issuer> {
    Arc::new(
        Issuer::new(Settings::new(
            server.url(),
            vec!["other".to_owned(), AUDIENCE.to_owned()],
        ))
        .expect("good settings"),
    )
}

#[expect(clippy::disallowed_methods, reason = "a moment to count from")]
fn after(passed: Duration) -> Now {
    // Only the monotonic clock advances, so the keys age and the token does not.
    Now {
        unix_seconds: now(),
        instant: Instant::now() + passed,
    }
}

async fn verify(issuer: &Arc<Issuer>, token: &str) -> Result<Verified, TokenError> {
    issuer.verify(token, after(Duration::ZERO)).await
}

fn is_invalid(outcome: &Result<Verified, TokenError>) -> bool {
    matches!(outcome, Err(TokenError::Invalid(_)))
}

fn is_unavailable(outcome: &Result<Verified, TokenError>) -> bool {
    matches!(outcome, Err(TokenError::Unavailable { .. }))
}

#[tokio::test]
async fn tokens_of_every_kind_of_key_are_accepted() {
    let (rsa, ec, ed) = (Key::rsa("r"), Key::ec("e"), Key::ed("d"));
    let server = TestIssuer::start(&[&rsa, &ec, &ed]).await;
    let issuer = issuer(&server);
    let claims = claims(server.url(), AUDIENCE, "alice");
    for key in [&rsa, &ec, &ed] {
        let verified = verify(&issuer, &key.token(&claims))
            .await
            .expect("it is valid");
        assert_eq!(
            (verified.subject.as_str(), verified.owner.as_str()),
            ("alice", "alice")
        );
        assert_eq!(
            verified.scopes,
            Some(
                ["openid", "read", "write", "delete"]
                    .map(str::to_owned)
                    .to_vec()
            )
        );
    }
    for header in [
        json!({"alg": "PS256", "kid": "r"}),
        json!({"alg": "RS512", "kid": "r"}),
        json!({"alg": "RS256", "kid": "r", "typ": "at+JWT"}),
        // Without a key id, every suitable key is tried.
        json!({"alg": "RS256"}),
    ] {
        assert!(
            verify(&issuer, &rsa.token_with(&header, &claims))
                .await
                .is_ok(),
            "{header}"
        );
    }
    assert_eq!(server.fetches(), 1, "the keys are cached");
}

#[tokio::test]
async fn a_token_with_a_wrong_claim_is_refused() {
    let key = Key::rsa("r");
    let server = TestIssuer::start(&[&key]).await;
    let issuer = issuer(&server);
    let good = claims(server.url(), AUDIENCE, "alice");
    let changed = |changes: Value| key.token(&with(good.clone(), changes));
    for changes in [
        json!({"iss": "https://evil.example"}),
        json!({"iss": format!("{}/", server.url())}),
        json!({"iss": null}),
        json!({"iss": [server.url()]}),
        json!({"aud": "another service"}),
        json!({"aud": []}),
        json!({"aud": ["x", {"aud": AUDIENCE}]}),
        json!({"aud": null}),
        json!({"aud": format!("{AUDIENCE} ")}),
        json!({"exp": now() - 61}),
        json!({"exp": null}),
        json!({"exp": "tomorrow"}),
        json!({"exp": format!("{}", now() + 1000)}),
        json!({"nbf": now() + 90}),
        json!({"nbf": "now"}),
        json!({"sub": null}),
        json!({"sub": ""}),
        json!({"sub": 7}),
        json!({"sub": "x".repeat(2000)}),
    ] {
        assert!(
            is_invalid(&verify(&issuer, &changed(changes.clone())).await),
            "{changes}"
        );
    }
    assert_eq!(server.fetches(), 0, "no keys are fetched for such a token");
    for changes in [
        json!({"exp": now() - 30}),
        json!({"nbf": now() + 30}),
        json!({"nbf": now() - 30, "exp": now() as f64 + 30.5}),
        json!({"aud": ["x", AUDIENCE]}),
        json!({"scope": null}),
        json!({"exp": 1e300}),
    ] {
        assert!(
            verify(&issuer, &changed(changes.clone())).await.is_ok(),
            "{changes}"
        );
    }
}

#[tokio::test]
async fn a_token_that_is_not_signed_by_the_issuers_key_is_refused() {
    let (rsa, ec) = (Key::rsa("r"), Key::ec("e"));
    let server = TestIssuer::start(&[&rsa, &ec]).await;
    let issuer = issuer(&server);
    let claims = claims(server.url(), AUDIENCE, "alice");
    let good = rsa.token(&claims);
    let modulus = rsa.public()["n"].as_str().expect("a modulus").to_owned();
    let jwk = rsa.public().to_string();
    let (signed, signature) = good.rsplit_once('.').expect("three parts");
    let other_claims = Key::rsa("r").token(&with(claims.clone(), json!({"sub": "root"})));
    let spliced = format!(
        "{}.{signature}",
        other_claims.rsplit_once('.').expect("three parts").0
    );
    for (what, token) in [
        (
            "another key under the same name",
            Key::other_rsa("r").token(&claims),
        ),
        (
            "another curve key under the same name",
            Key::ec("e").token(&claims),
        ),
        (
            "a key that is another kind",
            ec.token_with(&json!({"alg": "ES256", "kid": "r"}), &claims),
        ),
        (
            "an algorithm that the key does not support",
            rsa.token_with(&json!({"alg": "ES256", "kid": "r"}), &claims),
        ),
        ("none", unsigned("none", &claims)),
        ("None", unsigned("None", &claims)),
        ("no algorithm", unsigned("", &claims)),
        ("RS256 without a signature", unsigned("RS256", &claims)),
        (
            "a secret made of the public modulus",
            hs256(modulus.as_bytes(), "r", &claims),
        ),
        (
            "a secret made of the public key's JSON",
            hs256(jwk.as_bytes(), "r", &claims),
        ),
        ("an empty secret", hs256(b"", "r", &claims)),
        ("another token's signature", spliced),
        (
            "a signature cut short",
            format!("{signed}.{}", &signature[..signature.len() - 4]),
        ),
        ("no signature", format!("{signed}.")),
        ("two parts", signed.to_owned()),
        ("four parts", format!("{good}.x")),
        ("padding", format!("{good}==")),
        (
            "an extension",
            rsa.token_with(
                &json!({"alg": "RS256", "kid": "r", "crit": ["b64"], "b64": false}),
                &claims,
            ),
        ),
        (
            "a logout token",
            rsa.token_with(
                &json!({"alg": "RS256", "kid": "r", "typ": "logout+jwt"}),
                &claims,
            ),
        ),
        (
            "its own key",
            Key::other_rsa("r").token_with(
                &json!({"alg": "RS256", "jwk": Key::other_rsa("r").public()}),
                &claims,
            ),
        ),
        (
            "a key elsewhere",
            Key::other_rsa("r").token_with(
                &json!({"alg": "RS256", "kid": "r", "jku": "http://127.0.0.1:1/keys"}),
                &claims,
            ),
        ),
        ("claims that are a list", rsa.token(&json!([1]))),
        ("something long", "x.".repeat(40_000)),
        ("nothing", String::new()),
        ("dots", "..".to_owned()),
    ] {
        assert!(is_invalid(&verify(&issuer, &token).await), "{what}");
    }
    assert!(verify(&issuer, &good).await.is_ok());
}

#[tokio::test]
async fn a_rotated_key_is_found_at_once_and_the_old_one_is_forgotten() {
    let (old, new) = (Key::rsa("old"), Key::ec("new"));
    let server = TestIssuer::start(&[&old]).await;
    let issuer = issuer(&server);
    let claims = claims(server.url(), AUDIENCE, "alice");
    assert!(verify(&issuer, &old.token(&claims)).await.is_ok());
    assert!(
        is_invalid(&verify(&issuer, &new.token(&claims)).await),
        "it is not published yet"
    );
    server.publish(&[&new]);
    assert!(verify(&issuer, &new.token(&claims)).await.is_ok());
    assert!(
        is_invalid(&verify(&issuer, &old.token(&claims)).await),
        "it is withdrawn"
    );
}

#[tokio::test]
async fn keys_beyond_a_short_maximum_age_are_fetched_again() {
    let key = Key::rsa("r");
    let server = TestIssuer::start(&[&key]).await;
    let mut settings = Settings::new(server.url(), vec![AUDIENCE.to_owned()]);
    settings.keys_max_age = Duration::from_secs(60);
    let issuer = Arc::new(Issuer::new(settings).expect("good settings"));
    let token = key.token(&claims(server.url(), AUDIENCE, "alice"));
    // All times count from one moment, so that the time that the test takes does not matter.
    let began = after(Duration::ZERO);
    let at = |seconds| Now {
        instant: began.instant + Duration::from_secs(seconds),
        ..began
    };
    for (seconds, fetches) in [(0, 1), (29, 1), (60, 2)] {
        assert!(
            issuer.verify(&token, at(seconds)).await.is_ok(),
            "{seconds} s"
        );
        assert_eq!(server.fetches(), fetches, "{seconds} s");
    }
    // After half of the maximum age no token waits for the fetch, and none fails if the issuer is away.
    server.respond(500, "down");
    let fetched = async {
        while server.fetches() < 3 {
            assert!(issuer.verify(&token, at(60 + 30)).await.is_ok());
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), fetched).await;
    assert!(in_time.is_ok(), "no fetch in the background");
    assert!(issuer.verify(&token, at(60 + 59)).await.is_ok());
    assert!(is_unavailable(&issuer.verify(&token, at(60 + 60)).await));
}

#[tokio::test]
async fn unknown_keys_cause_a_bounded_number_of_fetches() {
    let key = Key::rsa("r");
    let server = TestIssuer::start(&[&key]).await;
    let issuer = issuer(&server);
    let claims = claims(server.url(), AUDIENCE, "alice");
    for i in 0..50 {
        let token = key.token_with(
            &json!({"alg": "RS256", "kid": format!("unknown {i}")}),
            &claims,
        );
        assert!(is_invalid(&verify(&issuer, &token).await));
    }
    // Four at once, and one more for each ten seconds that the test takes.
    assert!((2..=5).contains(&server.fetches()), "{}", server.fetches());
    assert!(
        verify(&issuer, &key.token(&claims)).await.is_ok(),
        "and others are served"
    );
}

#[tokio::test]
async fn keys_are_used_for_a_while_when_the_issuer_is_away() {
    let key = Key::rsa("r");
    let server = TestIssuer::start(&[&key]).await;
    let issuer = issuer(&server);
    let token = key.token(&claims(server.url(), AUDIENCE, "alice"));
    assert!(verify(&issuer, &token).await.is_ok());
    server.respond(500, "down");
    for minutes in [4, 6, 59] {
        assert!(
            issuer
                .verify(&token, after(Duration::from_secs(60 * minutes)))
                .await
                .is_ok(),
            "{minutes}"
        );
    }
    assert!(is_unavailable(
        &issuer
            .verify(&token, after(Duration::from_secs(3601)))
            .await
    ));
    let unknown = key.token_with(
        &json!({"alg": "RS256", "kid": "new"}),
        &claims(server.url(), AUDIENCE, "alice"),
    );
    assert!(
        is_unavailable(&verify(&issuer, &unknown).await),
        "it cannot be verified while the keys are unavailable"
    );
    server.publish(&[&key]);
    assert!(
        issuer
            .verify(&token, after(Duration::from_secs(4000)))
            .await
            .is_ok(),
        "it is accepted again"
    );
}

#[tokio::test]
async fn an_issuer_that_was_never_reached_makes_tokens_wait_and_not_wrong() {
    let key = Key::rsa("r");
    let server = TestIssuer::start(&[&key]).await;
    let token = key.token(&claims(server.url(), AUDIENCE, "alice"));
    let issuer = issuer(&server);
    drop(server);
    assert!(is_unavailable(&verify(&issuer, &token).await));
}

#[tokio::test]
async fn keys_that_cannot_be_read_verify_nothing_and_replace_nothing() {
    let key = Key::rsa("r");
    let mut short = key.public();
    short["n"] = json!("AQAB");
    let mut weak_use = key.public();
    weak_use["use"] = json!("enc");
    let mut secret = key.public();
    secret["kty"] = json!("oct");
    let mut other_algorithm = key.public();
    other_algorithm["alg"] = json!("HS256");
    let many: Vec<Value> = (0..65).map(|_| key.public()).collect();
    let most = json!({ "keys": many[..64] }).to_string();
    for page in [
        "".to_owned(),
        "<html>".to_owned(),
        "[]".to_owned(),
        "{\"keys\": {}}".to_owned(),
        "{\"keys\": []}".to_owned(),
        json!({"keys": [null, 7, "key", {}, {"kty": "RSA"}, {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}).to_string(),
        json!({"keys": [short]}).to_string(),
        json!({"keys": [weak_use]}).to_string(),
        json!({"keys": [secret]}).to_string(),
        json!({"keys": [other_algorithm]}).to_string(),
        json!({"keys": many}).to_string(),
        " ".repeat(300_000),
        "[".repeat(100_000),
    ] {
        let server = TestIssuer::start(&[&key]).await;
        let (before, after_it) = (issuer(&server), issuer(&server));
        let claims = claims(server.url(), AUDIENCE, "alice");
        assert!(verify(&before, &key.token(&claims)).await.is_ok());
        server.respond(200, &page);
        let shown = page.chars().take(80).collect::<String>();
        let token = key.token(&claims);
        assert!(is_unavailable(&verify(&after_it, &token).await), "{shown}");
        let unknown = key.token_with(&json!({"alg": "RS256", "kid": "new"}), &claims);
        assert!(is_invalid(&verify(&before, &unknown).await), "{shown}");
        assert!(verify(&before, &token).await.is_ok(), "{shown}");
        let outdated = after(Duration::from_secs(3601));
        assert!(is_unavailable(&before.verify(&token, outdated).await), "{shown}");
    }
    let server = TestIssuer::start(&[&key]).await;
    server.respond(200, &most);
    let token = key.token(&claims(server.url(), AUDIENCE, "alice"));
    assert!(
        verify(&issuer(&server), &token).await.is_ok(),
        "64 keys are not too many"
    );
}

#[tokio::test]
async fn a_discovery_document_of_another_issuer_is_not_followed() {
    let key = Key::rsa("r");
    let server = TestIssuer::start(&[&key]).await;
    let keys = format!("{}/keys", server.url());
    let token = key.token(&claims(server.url(), AUDIENCE, "alice"));
    for discovery in [
        json!({"issuer": "https://evil.example", "jwks_uri": keys}),
        json!({"issuer": server.url(), "jwks_uri": "http://192.0.2.1/keys"}),
        json!({"issuer": server.url(), "jwks_uri": "file:///etc/passwd"}),
        json!({"issuer": server.url()}),
        json!("text"),
    ] {
        server.describe(discovery.clone());
        assert!(
            is_unavailable(&verify(&issuer(&server), &token).await),
            "{discovery}"
        );
    }
    assert_eq!(server.fetches(), 0);
    let settings = Settings {
        jwks_url: Some(keys),
        ..Settings::new(server.url(), vec![AUDIENCE.to_owned()])
    };
    let configured = Arc::new(Issuer::new(settings).expect("good settings"));
    assert!(
        verify(&configured, &token).await.is_ok(),
        "no discovery is needed when the address of the keys is set"
    );
}

#[tokio::test]
async fn the_owner_and_the_scopes_come_from_the_claims_that_are_set() {
    let key = Key::rsa("r");
    let server = TestIssuer::start(&[&key]).await;
    let settings = Settings {
        owner_claim: "org".to_owned(),
        scope_claim: "/realm_access/roles".to_owned(),
        ..Settings::new(server.url(), vec![AUDIENCE.to_owned()])
    };
    let issuer = Arc::new(Issuer::new(settings).expect("good settings"));
    let good = claims(server.url(), AUDIENCE, "alice");
    assert!(
        is_invalid(&verify(&issuer, &key.token(&good)).await),
        "it has no `org`"
    );
    let token = key.token(&with(
        good,
        json!({"org": "team", "realm_access": {"roles": ["read", 7]}}),
    ));
    let verified = verify(&issuer, &token).await.expect("it is valid");
    assert_eq!(
        (verified.owner.as_str(), verified.scopes),
        ("team", Some(vec!["read".to_owned()]))
    );
}
