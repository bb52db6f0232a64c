//! A provider of embeddings and of reranking that responds at once: OpenAI's `/v1/embeddings` and Jina's `/v1/rerank`.
//! It replaces a model, because the time of a model would hide the time of the service.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::Result;

/// The vectors by text, in base64 as in a response.
#[derive(Debug, Default)]
struct Table(Mutex<HashMap<String, String>>);

/// A running provider. Dropping this value stops it.
#[derive(Debug)]
pub struct Provider {
    /// The address that it listens on.
    pub address: SocketAddr,
    table: Arc<Table>,
    /// Dropping it ends the thread.
    _running: oneshot::Sender<()>,
}

impl Provider {
    /// Starts the provider in a thread of its own, so that it responds while the client is busy.
    ///
    /// # Errors
    /// The system refuses a socket or a thread.
    pub fn start() -> Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let table = Arc::<Table>::default();
        let router = Router::new()
            .route("/v1/embeddings", post(embeddings))
            .route("/v1/rerank", post(rerank))
            // More than any request of the service takes, so that none is refused. axum's default is 2 MB.
            .layer(axum::extract::DefaultBodyLimit::max(16 << 20))
            .with_state(Arc::clone(&table));
        let (running, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("provider".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
                        return;
                    };
                    tokio::select! {
                        _ = axum::serve(listener, router) => {}
                        _ = stopped => {}
                    }
                });
            })?;
        Ok(Self {
            address,
            table,
            _running: running,
        })
    }

    /// Sets the vector that the provider returns for a text.
    pub fn set(&self, text: &str, vector: &[f32]) {
        let bytes = context_vector::encode(vector);
        self.table
            .lock()
            .insert(text.to_owned(), BASE64.encode(bytes));
    }

    /// Removes all texts.
    pub fn clear(&self) {
        self.table.lock().clear();
    }

    /// The settings of a service that embeds with this provider.
    pub fn settings(&self, reranking: bool) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("EMBEDDING_PROVIDER", "openai".to_owned()),
            ("EMBEDDING_URL", format!("http://{}/v1", self.address)),
            ("EMBEDDING_API_KEY", "none".to_owned()),
            ("EMBEDDING_MODEL", "bench".to_owned()),
            ("EMBEDDING_DIM", crate::vectors::DIMENSIONS.to_string()),
            ("ENABLE_RERANKING", reranking.to_string()),
        ];
        if reranking {
            settings.extend([
                ("RERANK_PROVIDER", "jina".to_owned()),
                ("RERANK_URL", format!("http://{}", self.address)),
                ("RERANK_MODEL", "bench".to_owned()),
                ("RERANK_API_KEY", "none".to_owned()),
            ]);
        }
        settings
    }
}

impl Table {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn embeddings(
    State(table): State<Arc<Table>>,
    Json(request): Json<Value>,
) -> std::result::Result<Json<Value>, StatusCode> {
    let texts: Vec<&str> = match &request["input"] {
        Value::String(text) => vec![text],
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).collect(),
        _ => return Err(StatusCode::BAD_REQUEST),
    };
    let is_base64 = request["encoding_format"] == "base64";
    let table = table.lock();
    let mut data = Vec::with_capacity(texts.len());
    for (index, text) in texts.into_iter().enumerate() {
        // The table lacks the text that a service embeds at its start to learn the number of dimensions.
        let vector = table.get(text).cloned().unwrap_or_else(|| {
            let mut vector = [0.0; crate::vectors::DIMENSIONS];
            vector[0] = 1.0;
            BASE64.encode(context_vector::encode(&vector))
        });
        let embedding = if is_base64 {
            vector.into()
        } else {
            numbers(&vector).ok_or(StatusCode::INTERNAL_SERVER_ERROR)?
        };
        data.push(json!({"object": "embedding", "index": index, "embedding": embedding}));
    }
    Ok(Json(
        json!({"object": "list", "data": data, "model": "bench", "usage": {"prompt_tokens": 0, "total_tokens": 0}}),
    ))
}

fn numbers(base64: &str) -> Option<Value> {
    let bytes = BASE64.decode(base64).ok()?;
    let mut vector = vec![0.0; bytes.len() / 4];
    context_vector::decode(&bytes, &mut vector).then(|| json!(vector))
}

/// Returns scores that keep the order of the documents.
async fn rerank(Json(request): Json<Value>) -> Json<Value> {
    let count = request["documents"].as_array().map_or(0, Vec::len);
    let results: Vec<Value> = (0..count)
        .map(|index| json!({"index": index, "relevance_score": 1.0 - index as f64 / count as f64}))
        .collect();
    Json(json!({"model": "bench", "results": results, "usage": {"total_tokens": 0}}))
}
