//! gRPC: the services of `proto/context/v1`, health, reflection and gRPC-Web.

mod artifacts;
mod calls;
mod changes;
mod contexts;
mod deadline;
mod fields;
mod keys;
mod message;
mod unreadable;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use context_model::{Error, Reason};
use context_proto::v1::api_key_service_server::ApiKeyServiceServer;
use context_proto::v1::artifact_service_server::ArtifactServiceServer;
use context_proto::v1::change_service_server::ChangeServiceServer;
use context_proto::v1::context_service_server::ContextServiceServer;
use http::{HeaderMap, header};
use tonic::Status;
use tonic::codec::CompressionEncoding;
use tonic_health::server::HealthReporter;

use artifacts::Artifacts;
use calls::Calls;
use changes::Changes;
use contexts::Contexts;
use keys::ApiKeys;

use crate::app::App;

/// All gRPC routes, and the reporter through which health checks learn that the service stops.
///
/// # Errors
/// If the compiled-in descriptors cannot be read: a build error.
pub async fn router(
    app: Arc<App>,
) -> Result<(Router, HealthReporter), tonic_reflection::server::Error> {
    let limit = app.limits.max_message_bytes();
    let calls = Calls::new(app.clone());
    let contexts = ContextServiceServer::new(Contexts::new(calls.clone()))
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit);
    // Its replies are small, and one holds a new key, so they are not compressed.
    let keys = ApiKeyServiceServer::new(ApiKeys::new(calls.clone()))
        .accept_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(limit);
    let changes = ChangeServiceServer::new(Changes::new(calls.clone()))
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit);
    let artifacts = ArtifactServiceServer::new(Artifacts::new(calls))
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip)
        .max_decoding_message_size(limit)
        .max_encoding_message_size(limit);
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<ContextServiceServer<Contexts>>().await;
    health.set_serving::<ApiKeyServiceServer<ApiKeys>>().await;
    health
        .set_serving::<ArtifactServiceServer<Artifacts>>()
        .await;
    health.set_serving::<ChangeServiceServer<Changes>>().await;
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(context_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let router = tonic::service::Routes::new(contexts)
        .add_service(artifacts)
        .add_service(changes)
        .add_service(keys)
        .add_service(health_service)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        .prepare()
        .into_axum_router()
        // tonic's own fallback would also respond to unknown REST paths.
        .reset_fallback()
        .layer(axum::middleware::from_fn_with_state(app, messages))
        .layer(tonic_web::GrpcWebLayer::new());
    Ok((router, health))
}

/// Counts the messages of a request as they arrive, and responds to unreadable ones. A single
/// middleware does both, because each one costs a gRPC call several allocations.
async fn messages(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    match message::counted(&app, request) {
        Ok(request) => unreadable::as_invalid_argument(next.run(request).await),
        Err(error) => crate::error_codes::status(&error)
            .into_http::<Body>()
            .into_response(),
    }
}

/// Refuses gRPC-Web in base64: all current browsers can send the binary form, which is a quarter
/// smaller.
///
/// # Errors
/// `UNSUPPORTED_MEDIA_TYPE` naming the binary form.
pub fn refuse_text(headers: &HeaderMap) -> Result<(), Error> {
    let content_type = headers.get(header::CONTENT_TYPE);
    if content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc-web-text"))
    {
        let sentence =
            "gRPC-Web is served as application/grpc-web+proto, not as application/grpc-web-text";
        return Err(Error::new(Reason::UnsupportedMediaType, sentence));
    }
    Ok(())
}

/// Reports to health checks that no new requests are accepted.
pub async fn set_not_serving(health: &HealthReporter) {
    health
        .set_not_serving::<ContextServiceServer<Contexts>>()
        .await;
    health
        .set_not_serving::<ApiKeyServiceServer<ApiKeys>>()
        .await;
    health
        .set_not_serving::<ArtifactServiceServer<Artifacts>>()
        .await;
    health
        .set_not_serving::<ChangeServiceServer<Changes>>()
        .await;
    health
        .set_service_status("", tonic_health::ServingStatus::NotServing)
        .await;
}

/// The response for an unknown gRPC method.
pub fn unknown_method() -> Response {
    Status::unimplemented("there is no such method; server reflection lists the methods")
        .into_http::<Body>()
        .into_response()
}
