//! A fake context service. It records each request as JSON and responds with a sample reply for the operation, with an
//! error, or not at all.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use context_gateway::backend::{Backend, Target};
use context_gateway::catalogue::Selection;
use context_gateway::handler::{Credentials, Gateway};
use context_model as model;
use context_proto::v1 as pb;
use context_proto::v1::artifact_service_server::{ArtifactService, ArtifactServiceServer};
use context_proto::v1::change_service_server::{ChangeService, ChangeServiceServer};
use context_proto::v1::context_service_server::{ContextService, ContextServiceServer};
use context_test_support::wait_for;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Notify, mpsc};
use tokio_stream::Stream;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream, UnixListenerStream};
use tonic::metadata::MetadataMap;
use tonic::transport::server::Connected;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};

use crate::session::within_a_minute;

/// The largest message that both sides allow in these tests.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// A recorded request.
#[derive(Debug, Clone)]
pub struct Seen {
    pub operation: &'static str,
    pub request: Value,
    pub metadata: MetadataMap,
}

/// An open stream of changes.
#[derive(Debug)]
pub struct Watching {
    /// The cursor with which it was opened.
    pub cursor: String,
    /// The credentials with which it was opened.
    pub authorization: Option<String>,
    /// Sends its frames.
    pub frames: mpsc::Sender<Result<pb::WatchResponse, Status>>,
}

/// What the service does with the next requests.
#[derive(Debug, Clone, Default)]
pub enum Behaviour {
    /// Returns the sample reply.
    #[default]
    Respond,
    /// Returns the sample reply. Its statistics have these features on or off: (fts, semantic, hybrid).
    Features(bool, bool, bool),
    Fail(Status),
    /// Fails at requests whose JSON has this word, and returns the sample reply to others.
    FailAt(&'static str, Status),
    /// Never responds.
    Hang,
}

#[derive(Debug, Default)]
struct State {
    seen: Mutex<Vec<Seen>>,
    watching: Mutex<Vec<Watching>>,
    behaviour: Mutex<Behaviour>,
    arrived: Notify,
    cancellation: Notify,
    cancelled: AtomicUsize,
}

/// A running service. Killing it breaks every connection at once, like killing a process.
pub struct FakeServer {
    kill: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl FakeServer {
    /// Kills the service and waits for its end. Its socket file stays, as after a crash.
    pub fn kill(&mut self) {
        drop(self.kill.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The service. Clones share the recorded requests.
#[derive(Debug, Clone, Default)]
pub struct Fake(Arc<State>);

impl Fake {
    pub fn seen(&self) -> Vec<Seen> {
        self.0.seen.lock().unwrap().clone()
    }

    /// Waits for the next stream of changes that the gateway opens.
    pub async fn watching(&self) -> Watching {
        wait_for("a stream of changes", || {
            self.0.watching.lock().unwrap().pop()
        })
        .await
    }

    pub fn behave(&self, behaviour: Behaviour) {
        *self.0.behaviour.lock().unwrap() = behaviour;
    }

    /// Waits until a request has arrived that gets no response ([`Behaviour::Hang`]).
    pub async fn arrived(&self) {
        within_a_minute("a request", self.0.arrived.notified()).await;
    }

    /// Waits until the caller of such a request has cancelled it.
    pub async fn cancelled(&self) {
        within_a_minute("a cancellation", self.0.cancellation.notified()).await;
    }

    /// The number of such requests that were cancelled.
    pub fn count_cancelled(&self) -> usize {
        self.0.cancelled.load(Ordering::Relaxed)
    }

    /// Serves on a socket in `dir` until the returned server is killed.
    pub fn serve(&self, dir: &std::path::Path) -> (PathBuf, FakeServer) {
        let path = dir.join("service.sock");
        let _ = std::fs::remove_file(&path);
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let incoming = move || UnixListenerStream::new(UnixListener::from_std(listener).unwrap());
        (path, self.run(Server::builder(), incoming))
    }

    /// Serves with TLS on a port of this machine until the returned server is killed. The certificate is valid for
    /// `localhost`. Returns the port.
    pub fn serve_tls(&self) -> (u16, FakeServer) {
        let identity = Identity::from_pem(
            include_str!("../../../services/store-postgres/tests/it/tls/server.pem"),
            include_str!("../../../services/store-postgres/tests/it/tls/server.key"),
        );
        let server = Server::builder()
            .tls_config(ServerTlsConfig::new().identity(identity))
            .unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let incoming = move || TcpListenerStream::new(TcpListener::from_std(listener).unwrap());
        (port, self.run(server, incoming))
    }

    /// Serves the connections that `incoming` returns. It is called in the runtime of the server.
    fn run<S, C>(&self, server: Server, incoming: impl FnOnce() -> S + Send + 'static) -> FakeServer
    where
        S: Stream<Item = std::io::Result<C>>,
        C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    {
        let service = ContextServiceServer::new(self.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let artifacts = ArtifactServiceServer::new(self.clone());
        let changes = ChangeServiceServer::new(self.clone());
        let (kill, killed) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let (_reporter, health) = tonic_health::server::health_reporter();
                let serving = server
                    // As the service.
                    .max_concurrent_streams(128)
                    .add_service(health)
                    .add_service(service)
                    .add_service(artifacts)
                    .add_service(changes)
                    .serve_with_incoming(incoming());
                tokio::select! {
                    outcome = serving => outcome.unwrap(),
                    _ = killed => {}
                }
            });
            // Dropping the runtime closes every connection, as the end of a process does.
        });
        FakeServer {
            kill: Some(kill),
            thread: Some(thread),
        }
    }

    async fn handle(
        &self,
        operation: &'static str,
        request: Value,
        metadata: MetadataMap,
    ) -> Result<Value, Status> {
        self.0.seen.lock().unwrap().push(Seen {
            operation,
            request: request.clone(),
            metadata,
        });
        let behaviour = self.0.behaviour.lock().unwrap().clone();
        match behaviour {
            Behaviour::Respond => Ok(sample(operation)),
            Behaviour::Features(fts, semantic, hybrid) => {
                let mut reply = sample(operation);
                if operation == "get_statistics" {
                    reply["fts"]["enabled"] = json!(fts);
                    reply["semantic_search"]["enabled"] = json!(semantic);
                    reply["hybrid_search"]["enabled"] = json!(hybrid);
                }
                Ok(reply)
            }
            Behaviour::Fail(status) => Err(status),
            Behaviour::FailAt(word, status) if request.to_string().contains(word) => Err(status),
            Behaviour::FailAt(..) => Ok(sample(operation)),
            Behaviour::Hang => {
                struct OnDrop<'a>(&'a State);
                impl Drop for OnDrop<'_> {
                    fn drop(&mut self) {
                        self.0.cancelled.fetch_add(1, Ordering::Relaxed);
                        self.0.cancellation.notify_one();
                    }
                }
                let _guard = OnDrop(&self.0);
                self.0.arrived.notify_one();
                std::future::pending().await
            }
        }
    }
}

/// A gateway and its fake service. Dropping it ends both.
pub struct Setup {
    pub fake: Fake,
    pub gateway: Arc<Gateway>,
    pub server: FakeServer,
    pub dir: tempfile::TempDir,
}

pub fn setup(credentials: Credentials) -> Setup {
    setup_with(credentials, Selection::default())
}

pub fn setup_with(credentials: Credentials, tools: Selection) -> Setup {
    setup_within(MAX_MESSAGE_BYTES, credentials, tools)
}

/// A gateway that accepts replies of up to `max_message_bytes`.
pub fn setup_within(max_message_bytes: usize, credentials: Credentials, tools: Selection) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let (socket, server) = fake.serve(dir.path());
    let backend = Backend::new(Target::Unix(socket), max_message_bytes).unwrap();
    Setup {
        fake,
        gateway: Gateway::with_tools(backend, credentials, tools),
        server,
        dir,
    }
}

/// The id of the artifact in the sample replies.
pub const ARTIFACT: &str = "019aa3f0-c2b0-7d5e-8a4b-6c1d2e3f4a5b";
/// The path of that artifact.
const PATH: &str = "/plans/t.md";
const CREATED: &str = "2026-11-21T10:00:00.000001Z";
const UPDATED: &str = "2026-11-21T10:00:00.000002Z";

/// A sample reply to an operation, with most of the keys that it can have.
pub fn sample(operation: &str) -> Value {
    let entry = json!({"id": 42, "thread_id": "t", "source": "agent", "content_type": "multimodal", "text_content": "Ünïcode \u{1f600}",
        "summary": "", "metadata": {"a": {"b": [1, 2.5, null, true, "x"]}}, "tags": ["a", "b"], "created_at": "2026-11-21T10:00:00.000001Z",
        "updated_at": "2026-11-21T10:00:00.000002Z", "version": 3,
        "images": [{"data": "AAEC", "mime_type": "image/png", "metadata": {"w": 1}}]});
    let hit = |scores: Value| {
        let mut hit = entry.clone();
        hit["is_text_content_truncated"] = json!(false);
        if !scores.is_null() {
            hit["scores"] = scores;
        }
        hit
    };
    let stats = json!({"execution_time_ms": 1.5, "filters_applied": 2, "rows_returned": 1, "backend": "sqlite", "query_plan": ["SCAN"]});
    let batch = |extra: Value| {
        json!({"success": false, "total": 2, "succeeded": 1, "failed": 1, "message": "1 of 2", "revision": 9, "results": [
            {"index": 0, "success": true, "context_id": 42, "error": null, "updated_fields": extra},
            {"index": 1, "success": false, "context_id": null, "error": "no", "updated_fields": null}]})
    };
    let feature = |more: Value| {
        let mut block = json!({"enabled": true, "available": true});
        block
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        block
    };
    match operation {
        "store_context" => {
            json!({"success": true, "context_id": 42, "thread_id": "t", "message": "stored", "version": 1, "revision": 9})
        }
        "store_context_batch" => batch(Value::Null),
        "update_context_batch" => batch(json!(["tags"])),
        "get_context_by_ids" => json!({"result": [entry], "revision": 9}),
        "update_context" => {
            json!({"success": true, "context_id": 42, "updated_fields": ["text_content"], "message": "updated", "version": 4, "revision": 9})
        }
        "delete_context" => {
            json!({"success": true, "deleted_count": 1, "message": "deleted", "revision": 9})
        }
        "delete_context_batch" => {
            json!({"success": true, "deleted_count": 1, "criteria_used": ["source"], "message": "deleted", "revision": 9})
        }
        "search_context" => {
            json!({"results": [hit(Value::Null)], "count": 1, "has_more": false, "stats": stats, "revision": 9})
        }
        "semantic_search_context" => {
            let scores =
                json!({"semantic_distance": 0.5, "semantic_rank": null, "rerank_score": null});
            let mut hit = hit(scores);
            hit["relevance"] = json!(0.25);
            hit["snippet"] = json!("...x...");
            json!({"query": "q", "model": "m", "results": [hit], "count": 1, "has_more": false, "stats": stats, "warnings": ["w"],
                "revision": 9})
        }
        "fts_search_context" => {
            let mut hit = hit(json!({"fts_score": 1.5, "fts_rank": null, "rerank_score": 0.5}));
            hit["highlighted"] = json!("<mark>x</mark>");
            json!({"query": "q", "mode": "match", "language": "english", "fts_available": true, "results": [hit], "count": 1,
                "has_more": false, "stats": stats, "warnings": ["w"], "revision": 9})
        }
        "hybrid_search_context" => {
            let scores = json!({"rrf": 0.1, "fts_rank": 1, "semantic_rank": null, "fts_score": 1.5, "semantic_distance": null, "rerank_score": null});
            let artifact = json!({"artifact_id": ARTIFACT, "title": "T", "path": PATH, "text_content": "# T",
                "is_text_content_truncated": false, "metadata": {"a": [1]}, "created_at": CREATED, "updated_at": UPDATED,
                "version": 2, "scores": scores, "relevance": 0.5});
            let mut hit = hit(scores);
            hit["relevance"] = json!(0.75);
            hit["snippet"] = json!("...x...");
            hit["highlighted"] = json!("<mark>x</mark>");
            json!({"query": "q", "fusion_method": "rrf", "search_modes_used": ["fts"], "fts_count": 2, "semantic_count": 0,
                "results": [hit, artifact], "count": 2, "has_more": false, "stats": stats, "warnings": ["w"], "revision": 9})
        }
        "list_threads" => {
            json!({"threads": [{"thread_id": "t", "entry_count": 2, "source_types": 2, "sources": {"user": 1, "agent": 1},
            "multimodal_count": 1, "first_entry": "2026-11-21T10:00:00.000000Z", "last_entry": "2026-11-21T10:00:01.000000Z", "last_id": 42}],
            "total_threads": 1, "has_more": false, "revision": 9})
        }
        "get_statistics" => {
            json!({"total_entries": 1, "by_source": {"user": 0, "agent": 1}, "by_content_type": {"text": 0, "multimodal": 1},
            "total_images": 1, "unique_tags": 2, "database_size_mb": 0.5, "connection_metrics": null,
            "semantic_search": feature(json!({"model": null, "dimensions": null, "embedding_count": 0, "coverage_percentage": 0.0,
                "pending_count": null, "pending_seconds": null})),
            "fts": feature(json!({"language": "english", "backend": "sqlite", "engine": "fts5", "indexed_entries": 1, "coverage_percentage": 100.0})),
            "hybrid_search": feature(json!({})),
            "chunking": feature(json!({"chunk_size": null, "chunk_overlap": null, "aggregation": "max"})),
            "reranking": feature(json!({"provider": null, "model": null})),
            "summary_generation": feature(json!({"provider": null, "model": null, "summary_count": 0, "coverage_percentage": 0.0, "min_content_length": 500})),
            "revision": 9})
        }
        "create_artifact" => {
            json!({"id": ARTIFACT, "title": "T", "content": "# T", "metadata": {"a": [1]}, "path": PATH, "created_at": CREATED,
                "message": "Created artifact: T", "version": 1, "revision": 9})
        }
        "list_artifacts" => {
            json!({"result": [{"id": ARTIFACT, "title": "T", "content_preview": "# T", "metadata": {}, "path": PATH,
            "created_at": CREATED, "updated_at": UPDATED}], "total": 2, "has_more": true, "next_cursor": "c", "revision": 9})
        }
        "search_artifacts" => {
            json!({"result": [{"id": ARTIFACT, "title": "T", "content_preview": "# T", "metadata": {}, "path": PATH,
            "relevance_context": "Matched query: 't'", "relevance": 0.5, "snippet": "...t...", "created_at": CREATED}],
            "has_more": false, "revision": 9})
        }
        "get_artifact" => {
            json!({"id": ARTIFACT, "title": "T", "content": "# T", "metadata": {}, "path": PATH, "created_at": CREATED,
                "updated_at": UPDATED, "version": 2, "revision": 9})
        }
        "update_artifact" => {
            json!({"id": ARTIFACT, "title": "T", "content": "# T", "metadata": {}, "path": PATH, "created_at": CREATED,
                "updated_at": UPDATED, "version": 2, "message": "Updated artifact: T", "revision": 9})
        }
        "delete_artifact" => {
            json!({"message": "Successfully deleted artifact", "artifact_id": ARTIFACT, "revision": 9})
        }
        "list_artifact_versions" => {
            json!({"artifact_id": ARTIFACT, "current_version": 2, "total_edits": 1, "recent_versions": [
            {"version": 1, "title": "S", "updated_at": CREATED, "changes": []}], "has_more": false, "revision": 9})
        }
        "get_artifact_version" => {
            json!({"version": 1, "title": "S", "content": "# S", "metadata": {}, "updated_at": CREATED, "revision": 9})
        }
        "restore_artifact_version" => {
            json!({"success": true, "message": "Artifact restored to version 1", "current_version": 3, "title": "S", "revision": 9})
        }
        "changes_since" => {
            json!({"changes": [{"revision": 9, "time": CREATED, "operation": "updated", "entity": "context", "id": "42",
            "thread_id": "t", "version": 3, "commit_end": true, "key_id": "k", "preview": "Ünïcode"}],
            "next_cursor": "c", "has_more": false, "revision": 9, "compacted_before": 1})
        }
        "diff_artifact_versions" => {
            json!({"artifact_id": ARTIFACT, "from_version": 1, "to_version": 2, "changes": ["content"], "diff": "-a\n+b\n", "revision": 9})
        }
        other => panic!("no sample for {other}"),
    }
}

macro_rules! operations {
    ($($rpc:ident $request:ident $response:ident $reply:ident),* $(,)?) => {
        #[tonic::async_trait]
        impl ContextService for Fake {
            $(async fn $rpc(&self, request: Request<pb::$request>) -> Result<Response<pb::$response>, Status> {
                let (metadata, _, message) = request.into_parts();
                let request: model::$request = message.try_into().unwrap();
                let reply = self.handle(stringify!($rpc), serde_json::to_value(request).unwrap(), metadata).await?;
                let reply: model::$reply = serde_json::from_value(reply).unwrap();
                Ok(Response::new(reply.try_into().unwrap()))
            })*

            async fn get_statistics(&self, request: Request<pb::GetStatisticsRequest>) -> Result<Response<pb::GetStatisticsResponse>, Status> {
                let reply = self.handle("get_statistics", json!({}), request.into_parts().0).await?;
                let reply: model::Statistics = serde_json::from_value(reply).unwrap();
                Ok(Response::new(reply.into()))
            }
        }
    };
}

operations! {
    store_context StoreContextRequest StoreContextResponse StoreContextReply,
    store_context_batch StoreContextBatchRequest StoreContextBatchResponse BatchReply,
    get_context_by_ids GetContextByIdsRequest GetContextByIdsResponse GetContextByIdsReply,
    update_context UpdateContextRequest UpdateContextResponse UpdateContextReply,
    update_context_batch UpdateContextBatchRequest UpdateContextBatchResponse BatchReply,
    delete_context DeleteContextRequest DeleteContextResponse DeleteContextReply,
    delete_context_batch DeleteContextBatchRequest DeleteContextBatchResponse DeleteContextBatchReply,
    search_context SearchContextRequest SearchContextResponse SearchContextReply,
    semantic_search_context SemanticSearchContextRequest SemanticSearchContextResponse SemanticSearchContextReply,
    fts_search_context FtsSearchContextRequest FtsSearchContextResponse FtsSearchContextReply,
    hybrid_search_context HybridSearchContextRequest HybridSearchContextResponse HybridSearchContextReply,
    list_threads ListThreadsRequest ListThreadsResponse ListThreadsReply,
    get_thread GetThreadRequest GetThreadResponse GetThreadReply,
    list_tags ListTagsRequest ListTagsResponse ListTagsReply,
    list_metadata_keys ListMetadataKeysRequest ListMetadataKeysResponse ListMetadataKeysReply,
    list_metadata_values ListMetadataValuesRequest ListMetadataValuesResponse ListMetadataValuesReply,
    list_days ListDaysRequest ListDaysResponse ListDaysReply,
}

macro_rules! artifact_operations {
    ($($rpc:ident $request:ident $response:ident $reply:ident),* $(,)?) => {
        #[tonic::async_trait]
        impl ArtifactService for Fake {
            $(async fn $rpc(&self, request: Request<pb::$request>) -> Result<Response<pb::$response>, Status> {
                let (metadata, _, message) = request.into_parts();
                let request: model::$request = message.try_into().unwrap();
                let reply = self.handle(stringify!($rpc), serde_json::to_value(request).unwrap(), metadata).await?;
                let reply: model::$reply = serde_json::from_value(reply).unwrap();
                Ok(Response::new(reply.into()))
            })*
        }
    };
}

artifact_operations! {
    create_artifact CreateArtifactRequest CreateArtifactResponse CreateArtifactReply,
    list_artifacts ListArtifactsRequest ListArtifactsResponse ListArtifactsReply,
    search_artifacts SearchArtifactsRequest SearchArtifactsResponse SearchArtifactsReply,
    get_artifact GetArtifactRequest GetArtifactResponse GetArtifactReply,
    update_artifact UpdateArtifactRequest UpdateArtifactResponse UpdateArtifactReply,
    delete_artifact DeleteArtifactRequest DeleteArtifactResponse DeleteArtifactReply,
    move_artifacts MoveArtifactsRequest MoveArtifactsResponse MoveArtifactsReply,
    delete_artifacts DeleteArtifactsRequest DeleteArtifactsResponse DeleteArtifactsReply,
    list_artifact_versions ListArtifactVersionsRequest ListArtifactVersionsResponse ListArtifactVersionsReply,
    get_artifact_version GetArtifactVersionRequest GetArtifactVersionResponse GetArtifactVersionReply,
    restore_artifact_version RestoreArtifactVersionRequest RestoreArtifactVersionResponse RestoreArtifactVersionReply,
    diff_artifact_versions DiffArtifactVersionsRequest DiffArtifactVersionsResponse DiffArtifactVersionsReply,
}

#[tonic::async_trait]
impl ChangeService for Fake {
    type WatchStream = ReceiverStream<Result<pb::WatchResponse, Status>>;

    async fn watch(
        &self,
        request: Request<pb::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (frames, receiver) = mpsc::channel(16);
        let authorization = request.metadata().get("authorization");
        let opened = Watching {
            authorization: authorization.map(|value| value.to_str().unwrap().to_owned()),
            cursor: request.into_inner().cursor.unwrap_or_default(),
            frames,
        };
        self.0.watching.lock().unwrap().push(opened);
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn list_changes(
        &self,
        request: Request<pb::ListChangesRequest>,
    ) -> Result<Response<pb::ListChangesResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        let request: model::ListChangesRequest = message.try_into().unwrap();
        let request = serde_json::to_value(request).unwrap();
        let reply = self.handle("changes_since", request, metadata).await?;
        let reply: model::ListChangesReply = serde_json::from_value(reply).unwrap();
        Ok(Response::new(reply.try_into().unwrap()))
    }
}
