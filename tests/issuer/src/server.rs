//! The issuer's pages.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::key::Key;

/// An issuer that runs until it is dropped.
pub struct TestIssuer {
    url: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    discovery: Mutex<Value>,
    /// The status and the text of the page with the keys.
    keys: Mutex<(StatusCode, String)>,
    fetches: AtomicUsize,
}

impl TestIssuer {
    /// Starts one on a free port of this machine, with these keys.
    pub async fn start(keys: &[&Key]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let discovery = Mutex::new(json!({"issuer": url, "jwks_uri": format!("{url}/keys")}));
        let shared = Arc::new(Shared {
            discovery,
            keys: Mutex::default(),
            fetches: AtomicUsize::new(0),
        });
        let pages = Router::new()
            .route("/.well-known/openid-configuration", get(discovery_page))
            .route("/keys", get(keys_page))
            .with_state(shared.clone());
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, pages).await;
        });
        let issuer = Self { url, shared, task };
        issuer.publish(keys);
        issuer
    }

    /// Its address, which is its name.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Publishes these keys instead of those before.
    pub fn publish(&self, keys: &[&Key]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.public()).collect();
        self.answer(200, &json!({ "keys": keys }).to_string());
    }

    /// Answers whoever asks for the keys with this.
    pub fn answer(&self, status: u16, text: &str) {
        let status = StatusCode::from_u16(status).expect("a status");
        *self
            .shared
            .keys
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = (status, text.to_owned());
    }

    /// Describes itself with this.
    pub fn describe(&self, discovery: Value) {
        *self
            .shared
            .discovery
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = discovery;
    }

    /// How often the keys were asked for.
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
