//! The HTTP server of the issuer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::key::Key;
use crate::sign_in::{Codes, SignIn, SignInState, authorize, token};

/// An issuer that runs until it is dropped.
pub struct TestIssuer {
    url: String,
    shared: Arc<Shared>,
    sign_in_state: SignInState,
    task: JoinHandle<()>,
}

struct Shared {
    discovery: Mutex<Value>,
    /// The status and the body of the key page.
    keys: Mutex<(StatusCode, String)>,
    fetches: AtomicUsize,
}

impl TestIssuer {
    /// Starts an issuer with these keys on a free port.
    pub async fn start(keys: &[&Key]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let discovery = Mutex::new(json!({"issuer": url, "jwks_uri": format!("{url}/keys"),
            "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/token")}));
        let shared = Arc::new(Shared {
            discovery,
            keys: Mutex::default(),
            fetches: AtomicUsize::new(0),
        });
        let pages = Router::new()
            .route("/.well-known/openid-configuration", get(discovery_page))
            .route("/keys", get(keys_page))
            .with_state(shared.clone());
        let sign_in_state = SignInState::default();
        let sign_in = Router::new()
            .route("/authorize", get(authorize))
            .route("/token", post(token))
            .with_state(sign_in_state.clone());
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, pages.merge(sign_in)).await;
        });
        let issuer = Self {
            url,
            shared,
            sign_in_state,
            task,
        };
        issuer.publish(keys);
        issuer
    }

    /// The issuer's URL, which is also its name.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Publishes these keys instead of the previous ones.
    pub fn publish(&self, keys: &[&Key]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.public()).collect();
        self.respond(200, &json!({ "keys": keys }).to_string());
    }

    /// Sets the response to requests for the keys.
    pub fn respond(&self, status: u16, text: &str) {
        let status = StatusCode::from_u16(status).expect("a status");
        *self
            .shared
            .keys
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = (status, text.to_owned());
    }

    /// Signs people in for this client. Earlier codes have expired.
    pub fn sign_in(&self, sign_in: SignIn) {
        *self
            .sign_in_state
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some((sign_in, Codes::new()));
    }

    /// Sets the discovery document.
    pub fn describe(&self, discovery: Value) {
        *self
            .shared
            .discovery
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = discovery;
    }

    /// Number of requests for the keys.
    #[must_use]
    pub fn fetches(&self) -> usize {
        self.shared.fetches.load(Ordering::Relaxed)
    }
}

impl Drop for TestIssuer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn discovery_page(State(shared): State<Arc<Shared>>) -> String {
    shared
        .discovery
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .to_string()
}

async fn keys_page(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    shared.fetches.fetch_add(1, Ordering::Relaxed);
    shared
        .keys
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}
