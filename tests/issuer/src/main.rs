//! An issuer for the walk through the page: `context-test-issuer CLIENT SECRET REDIRECT AUDIENCE` prints its URL and runs
//! until its standard input ends.

use std::io::Read as _;

use context_test_issuer::{Key, SignIn, TestIssuer, claims};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [client, secret, redirect, audience] = arguments.as_slice() else {
        panic!("context-test-issuer CLIENT SECRET REDIRECT AUDIENCE");
    };
    let key = Key::ec("key");
    let issuer = TestIssuer::start(&[&key]).await;
    issuer.sign_in(SignIn {
        client: client.clone(),
        secret: Some(secret.clone()),
        redirect: redirect.clone(),
        name: "id_token",
        token: key.token(&claims(issuer.url(), audience, "person")),
    });
    println!("{}", issuer.url());
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = ended.await;
}
