//! The page at `/`, which shows people what the service stores. Its files are built from `services/server/ui` and are
//! part of this binary.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::app::App;

/// The page connects only to this service. Stored content cannot run in it: inline scripts and styles are blocked, and
/// text never becomes HTML.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Stops the page of another tab from accessing this one, which may hold a key.
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

struct File {
    media_type: &'static str,
    bytes: &'static [u8],
}

static PAGE: File = File {
    media_type: "text/html; charset=utf-8",
    bytes: include_bytes!("../../ui/dist/index.html"),
};
static SCRIPT: File = File {
    media_type: "text/javascript; charset=utf-8",
    bytes: include_bytes!("../../ui/dist/app.js"),
};
static STYLE: File = File {
    media_type: "text/css; charset=utf-8",
    bytes: include_bytes!("../../ui/dist/app.css"),
};

/// One tag for all files: they belong together.
static TAG: LazyLock<HeaderValue> = LazyLock::new(|| {
    let mut all = ring::digest::Context::new(&ring::digest::SHA256);
    for file in [&PAGE, &SCRIPT, &STYLE] {
        all.update(file.bytes);
    }
    let digest: String = all.finish().as_ref()[..12]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    // Weak, because a reply may be compressed.
    HeaderValue::from_str(&format!("W/\"{digest}\"")).unwrap_or(HeaderValue::from_static("W/\"\""))
});

/// `/` and `/ui/…`.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(async |headers: HeaderMap| reply(&PAGE, &headers)))
        .route(
            "/ui/app.js",
            get(async |headers: HeaderMap| reply(&SCRIPT, &headers)),
        )
        .route(
            "/ui/app.css",
            get(async |headers: HeaderMap| reply(&STYLE, &headers)),
        )
}

fn reply(file: &'static File, headers: &HeaderMap) -> Response {
    let is_current = headers.get_all(header::IF_NONE_MATCH).iter().any(|tags| {
        tags.to_str()
            .is_ok_and(|tags| tags.split(',').any(|tag| *TAG == *tag.trim()))
    });
    let mut response = if is_current {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        let media_type = HeaderValue::from_static(file.media_type);
        ([(header::CONTENT_TYPE, media_type)], file.bytes).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, TAG.clone());
    // File names stay the same from version to version, so the browser must revalidate them at each use.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    );
    headers.insert(OPENER_POLICY, HeaderValue::from_static("same-origin"));
    response
}
