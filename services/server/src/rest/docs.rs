//! The OpenAPI document and the API explorer. Both are built at the first request.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use bytes::Bytes;
use context_model::{Error, Reason};
use http::{HeaderValue, header};
use utoipa_swagger_ui::Config;

use super::openapi;
use crate::app::App;
use crate::problem::Problem;

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| openapi::document().into());
static SETTINGS: LazyLock<Arc<Config<'static>>> = LazyLock::new(|| {
    Arc::new(
        // Relative, so that a proxy may serve the service under a path of its own.
        Config::from("../openapi.json")
            .try_it_out_enabled(true)
            .display_request_duration(true),
    )
});

/// `/openapi.json` and `/docs`.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/openapi.json", get(document))
        .route("/docs", get(|| async { Redirect::permanent("docs/") }))
        .route("/docs/", get(|| page(Ok(Path(String::new())))))
        .route("/docs/{*file}", get(page))
}

async fn document() -> Response {
    (
        [(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        )],
        DOCUMENT.clone(),
    )
        .into_response()
}

async fn page(file: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    // No file has a name that is not UTF-8. axum's own rejection would be plain text.
    let found = file.map_or(Ok(None), |Path(file)| {
        utoipa_swagger_ui::serve(&file, SETTINGS.clone())
    });
    match found {
        Ok(Some(file)) => {
            let media_type = HeaderValue::from_str(&file.content_type)
                .unwrap_or(HeaderValue::from_static("application/octet-stream"));
            Ok((
                [(header::CONTENT_TYPE, media_type)],
                file.bytes.into_owned(),
            )
                .into_response())
        }
        Ok(None) => Err(Error::new(Reason::NotFound, "there is no such page; see /docs").into()),
        Err(error) => Err(Error::internal(std::io::Error::other(error.to_string())).into()),
    }
}
