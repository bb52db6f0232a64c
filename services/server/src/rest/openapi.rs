//! The OpenAPI document, made from the handlers and the model types.

use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::response::ResponseBuilder;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{OpenApi, Ref, RefOr, Response};
use utoipa::{OpenApi as _, PartialSchema as _, ToSchema as _};

use super::routes::documented;
use crate::problem::{MEDIA_TYPE, ProblemBody};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Context service",
        description = "The shared memory of agents: entries of text, images, metadata and tags in threads, stored durably and found by \
                       filters and words. The same operations are served over gRPC (`context.v1.ContextService`) on the same port, and \
                       as MCP tools by `context-gateway`.\n\nEvery error is `application/problem+json` (RFC 9457) with a stable \
                       `reason`.",
        contact(name = "The maintainers of the context service"),
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    servers((url = "http://127.0.0.1:7420", description = "The service on this machine")),
    tags(
        (name = "contexts", description = "Storing, fetching, changing and deleting entries"),
        (name = "artifacts", description = "Documents that keep every version"),
        (name = "api-keys", description = "The owner's own keys"),
        (name = "search", description = "Finding entries"),
        (name = "overview", description = "Threads and statistics"),
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
    let mut text = api.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// With authentication on, operations need a key; without it, they need none. Health and metrics never do.
fn add_keys(api: &mut OpenApi) {
    const NAME: &str = "api_key";
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some("An API key, when the service runs with AUTH=keys"));
    api.components
        .get_or_insert_default()
        .add_security_scheme(NAME, SecurityScheme::Http(scheme.build()));
    for (_, item) in api
        .paths
        .paths
        .iter_mut()
        .filter(|(path, _)| path.starts_with("/v1/"))
    {
        let operations = [
            &mut item.get,
            &mut item.post,
            &mut item.patch,
            &mut item.delete,
        ];
        for operation in operations.into_iter().flatten() {
            let none: [&str; 0] = [];
            operation.security = Some(vec![
                SecurityRequirement::default(),
                SecurityRequirement::new(NAME, none),
            ]);
        }
    }
}

/// Every operation can fail, and always in the same form.
fn add_problems(api: &mut OpenApi) {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("Problem")))
        .build();
    let problem: Response = ResponseBuilder::new()
        .description("A failure; `reason` says which")
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
        let operations = [
            &mut item.get,
            &mut item.post,
            &mut item.patch,
            &mut item.delete,
        ];
        for operation in operations.into_iter().flatten() {
            operation.responses.responses.insert(
                "default".to_owned(),
                RefOr::Ref(Ref::from_response_name("Problem")),
            );
        }
    }
}
