//! The OpenAPI document, generated from the handlers and the model types.

use context_model::ArtifactSearchMode;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::schema::{AdditionalProperties, AllOf, Object, Schema};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{OpenApi, Ref, RefOr, Response};
use utoipa::{OpenApi as _, PartialSchema as _, ToSchema as _};

use super::routes::documented;
use crate::problem::{MEDIA_TYPE, ProblemBody};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Context service",
        description = "The shared memory of agents: entries of text, images, metadata and tags in threads, stored durably and \
                       found by filters, full-text search and semantic search. The same operations are served over \
                       gRPC (package `context.v1`) on the same port. Most of them are MCP tools of \
                       `context-gateway`.\n\nEvery error is `application/problem+json` (RFC 9457) with a stable `reason`.",
        contact(name = "The maintainers of the context service"),
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    // A schema that only a query parameter has is not collected from the handlers.
    components(schemas(ArtifactSearchMode)),
    servers((url = ".", description = "The service that returned this document")),
    tags(
        (name = "contexts", description = "Storing, fetching, changing and deleting entries"),
        (name = "artifacts", description = "Documents that keep every version"),
        (name = "changes", description = "Following what changes"),
        (name = "api-keys", description = "The owner's own keys"),
        (name = "search", description = "Finding entries"),
        (name = "overview", description = "Threads, tags, metadata, days and statistics"),
        (name = "operation", description = "Health and metrics")
    )
)]
struct Base;

/// The document as pretty JSON with a final line break.
#[must_use]
pub fn document() -> String {
    let (_, documented) = documented().split_for_parts();
    let mut api = Base::openapi();
    api.merge(documented);
    add_problems(&mut api);
    add_keys(&mut api);
    join_parts(&mut api);
    let mut text = api.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// Adds API keys to the operations as an option, because they are only required with authentication on. Health checks
/// and metrics never require a key.
fn add_keys(api: &mut OpenApi) {
    const NAME: &str = "api_key";
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "An API key with AUTH=keys; with AUTH=oidc also a token of the OpenID Connect issuer",
        ));
    api.components
        .get_or_insert_default()
        .add_security_scheme(NAME, SecurityScheme::Http(scheme.build()));
    for (_, item) in api
        .paths
        .paths
        .iter_mut()
        .filter(|(path, _)| path.starts_with("/v1/"))
    {
        for operation in operations(item) {
            let none: [&str; 0] = [];
            operation.security = Some(vec![
                SecurityRequirement::default(),
                SecurityRequirement::new(NAME, none),
            ]);
        }
    }
}

/// Adds the error response to every operation. It always has the same format.
fn add_problems(api: &mut OpenApi) {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("Problem")))
        .build();
    let problem: Response = ResponseBuilder::new()
        .description("The request failed; `reason` says why")
        .content(MEDIA_TYPE, content)
        .build();
    let components = api.components.get_or_insert_default();
    let mut schemas = vec![("Problem".to_owned(), ProblemBody::schema())];
    ProblemBody::schemas(&mut schemas);
    components.schemas.extend(schemas);
    components
        .responses
        .insert("Problem".to_owned(), RefOr::T(problem));
    for item in api.paths.paths.values_mut() {
        for operation in operations(item) {
            operation.responses.responses.insert(
                "default".to_owned(),
                RefOr::Ref(Ref::from_response_name("Problem")),
            );
        }
    }
}

/// The operations of a path.
fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem {
        get,
        post,
        patch,
        delete,
        ..
    } = item;
    [get, post, patch, delete].into_iter().flatten()
}

/// Merges the parts of a request schema into one object. A search request has its filters as a separate part, but is
/// one object in JSON.
fn join_parts(api: &mut OpenApi) {
    for schema in api.components.get_or_insert_default().schemas.values_mut() {
        if let RefOr::T(Schema::AllOf(parts)) = schema
            && let Some(mut whole) = joined(parts)
        {
            whole.description = parts.description.take();
            whole.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
            *schema = RefOr::T(Schema::Object(whole));
        }
    }
}

/// An object with the properties of all parts. `None` when a part is a named type, which occurs in replies.
fn joined(parts: &AllOf) -> Option<Object> {
    let mut whole = Object::default();
    for part in &parts.items {
        let part = match part {
            RefOr::T(Schema::Object(part)) => part.clone(),
            RefOr::T(Schema::AllOf(parts)) => joined(parts)?,
            _ => return None,
        };
        whole.properties.extend(part.properties);
        whole.required.extend(part.required);
    }
    Some(whole)
}
