//! An issuer for the browser test of the page (`scripts/outside/page/walk.mjs`): `context-test-issuer CLIENT SECRET
//! REDIRECT` prints its URL and runs until its standard input ends.

#![expect(clippy::print_stdout, reason = "it prints its URL")]

use std::io::Read as _;

use context_test_issuer::{Key, SignIn, TestIssuer, claims, with};
use serde_json::json;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [client, secret, redirect] = arguments.as_slice() else {
        panic!("context-test-issuer CLIENT SECRET REDIRECT");
    };
    let key = Key::ec("key");
    let issuer = TestIssuer::start(&[&key]).await;
    let person = claims(issuer.url(), client, "person");
    issuer.sign_in(SignIn {
        client: client.clone(),
        secret: Some(secret.clone()),
        redirect: redirect.clone(),
        access_token: "opaque".to_owned(),
        id_token: Box::new(move |nonce| key.token(&with(person.clone(), json!({"nonce": nonce})))),
    });
    println!("{}", issuer.url());
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = ended.await;
}
