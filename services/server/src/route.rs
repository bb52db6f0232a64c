//! Finds the operation of a request by method and path, before its body is read.

use context_model::{Operation, Resource};
use http::Method;

use Operation::{
    CreateApiKey, CreateArtifact, DeactivateApiKey, DeleteArtifact, DeleteArtifacts, DeleteContext,
    DeleteContextBatch, DiffArtifactVersions, FtsSearchContext, GetApiKey, GetArtifact,
    GetArtifactVersion, GetContextByIds, GetStatistics, GetThread, HybridSearchContext,
    ListApiKeys, ListArtifactVersions, ListArtifacts, ListChanges, ListDays, ListMetadataKeys,
    ListMetadataValues, ListTags, ListThreads, MoveArtifacts, RestoreArtifactVersion,
    SearchArtifacts, SearchContext, SemanticSearchContext, StoreContext, StoreContextBatch,
    UpdateApiKey, UpdateArtifact, UpdateContext, UpdateContextBatch, Watch,
};

/// The REST routes, by method and path template.
const REST: &[(Method, &str, Operation)] = &[
    (Method::POST, "/v1/contexts", StoreContext),
    (Method::GET, "/v1/contexts", GetContextByIds),
    (Method::POST, "/v1/contexts/batch", StoreContextBatch),
    (Method::PATCH, "/v1/contexts/batch", UpdateContextBatch),
    (Method::POST, "/v1/contexts/delete", DeleteContext),
    (
        Method::POST,
        "/v1/contexts/batch-delete",
        DeleteContextBatch,
    ),
    (Method::GET, "/v1/contexts/{context_id}", GetContextByIds),
    (Method::PATCH, "/v1/contexts/{context_id}", UpdateContext),
    (Method::DELETE, "/v1/contexts/{context_id}", DeleteContext),
    (Method::POST, "/v1/contexts/search", SearchContext),
    (
        Method::POST,
        "/v1/contexts/search/semantic",
        SemanticSearchContext,
    ),
    (Method::POST, "/v1/contexts/search/fts", FtsSearchContext),
    (
        Method::POST,
        "/v1/contexts/search/hybrid",
        HybridSearchContext,
    ),
    (Method::GET, "/v1/threads", ListThreads),
    (Method::GET, "/v1/threads/{thread_id}", GetThread),
    (Method::GET, "/v1/tags", ListTags),
    (Method::GET, "/v1/metadata/keys", ListMetadataKeys),
    (Method::GET, "/v1/metadata/values", ListMetadataValues),
    (Method::GET, "/v1/days", ListDays),
    (Method::GET, "/v1/statistics", GetStatistics),
    (Method::POST, "/v1/artifacts", CreateArtifact),
    (Method::GET, "/v1/artifacts", ListArtifacts),
    (Method::GET, "/v1/artifacts/search", SearchArtifacts),
    (Method::GET, "/v1/artifacts/by-path", GetArtifact),
    (Method::POST, "/v1/artifacts/move", MoveArtifacts),
    (Method::POST, "/v1/artifacts/delete", DeleteArtifacts),
    (Method::GET, "/v1/artifacts/{artifact_id}", GetArtifact),
    (Method::PATCH, "/v1/artifacts/{artifact_id}", UpdateArtifact),
    (
        Method::DELETE,
        "/v1/artifacts/{artifact_id}",
        DeleteArtifact,
    ),
    (
        Method::GET,
        "/v1/artifacts/{artifact_id}/versions",
        ListArtifactVersions,
    ),
    (
        Method::GET,
        "/v1/artifacts/{artifact_id}/versions/{version}",
        GetArtifactVersion,
    ),
    (
        Method::POST,
        "/v1/artifacts/{artifact_id}/versions/{version}/restore",
        RestoreArtifactVersion,
    ),
    (
        Method::GET,
        "/v1/artifacts/{artifact_id}/diff",
        DiffArtifactVersions,
    ),
    (Method::GET, "/v1/changes", ListChanges),
    (Method::GET, "/v1/watch", Watch),
    (Method::POST, "/v1/api-keys", CreateApiKey),
    (Method::GET, "/v1/api-keys", ListApiKeys),
    (Method::GET, "/v1/api-keys/{key_id}", GetApiKey),
    (Method::PATCH, "/v1/api-keys/{key_id}", UpdateApiKey),
    (
        Method::POST,
        "/v1/api-keys/{key_id}/deactivate",
        DeactivateApiKey,
    ),
];

/// Path prefixes of operations. The handlers of `/internal/` serve only the Unix socket. All other paths (health,
/// metrics, documentation, reflection) reveal no owner's data.
const GUARDED: [&str; 2] = ["/v1/", "/context.v1."];

/// Whether a path has the prefix of operations, whether or not the operation exists.
#[must_use]
pub fn is_guarded(path: &str) -> bool {
    GUARDED.iter().any(|prefix| path.starts_with(prefix))
}

/// Whether a path that is not guarded is that of a stream, which stays open as long as the caller wants.
#[must_use]
pub fn is_public_stream(path: &str) -> bool {
    path == "/grpc.health.v1.Health/Watch" || path.starts_with("/grpc.reflection.")
}

/// The operation of a request. `template` is the route that the path matched.
#[must_use]
pub fn operation(method: &Method, path: &str, template: Option<&str>) -> Option<Operation> {
    if let Some(operation) = Operation::of_grpc_path(path) {
        return Some(operation);
    }
    // A route for GET also serves HEAD.
    let method = if method == Method::HEAD {
        &Method::GET
    } else {
        method
    };
    let template = template?;
    REST.iter()
        .find(|(on, route, _)| on == method && *route == template)
        .map(|(_, _, operation)| *operation)
}

/// Whether the REST route of an operation has parameters in the query string. Its handler then refuses unknown ones.
#[must_use]
pub fn takes_parameters(method: &Method, operation: Operation) -> bool {
    matches!(*method, Method::GET | Method::HEAD) && operation.resource() != Resource::ApiKey
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_documented_route_has_its_operation_and_no_other_is_listed() {
        let document: serde_json::Value = serde_json::from_str(&crate::rest::document()).unwrap();
        let mut documented = BTreeSet::new();
        for (path, methods) in document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .filter(|(path, _)| is_guarded(path))
        {
            for (method, described) in methods
                .as_object()
                .unwrap()
                .iter()
                .filter(|(_, described)| described["operationId"].is_string())
            {
                let name = described["operationId"].as_str().unwrap();
                // Routes for single entries have operation ids of their own.
                let name = match name {
                    "get_context" => "get_context_by_ids",
                    "delete_context_by_id" => "delete_context",
                    "get_artifact_by_path" => "get_artifact",
                    other => other,
                };
                documented.insert((method.to_uppercase(), path.clone(), name.to_owned()));
            }
        }
        let listed: BTreeSet<_> = REST
            .iter()
            .map(|(method, path, operation)| {
                (
                    method.to_string(),
                    (*path).to_owned(),
                    operation.as_str().to_owned(),
                )
            })
            .collect();
        assert_eq!(listed, documented);
    }

    #[test]
    fn the_routes_with_documented_parameters_take_some() {
        let document: serde_json::Value = serde_json::from_str(&crate::rest::document()).unwrap();
        for (method, path, operation) in REST {
            let described = &document["paths"][path][method.as_str().to_lowercase()];
            let parameters = described["parameters"].as_array();
            let is_documented = parameters.is_some_and(|parameters| {
                parameters
                    .iter()
                    .any(|parameter| parameter["in"] == "query")
            });
            assert_eq!(
                takes_parameters(method, *operation),
                is_documented,
                "{method} {path}"
            );
        }
    }

    #[test]
    fn grpc_methods_are_found_by_path_and_unknown_routes_are_none() {
        let path = "/context.v1.ContextService/StoreContext";
        assert_eq!(
            operation(
                &Method::POST,
                path,
                Some("/context.v1.ContextService/{*rest}")
            ),
            Some(StoreContext)
        );
        assert_eq!(
            operation(&Method::HEAD, "/v1/threads", Some("/v1/threads")),
            Some(ListThreads)
        );
        assert_eq!(
            operation(&Method::PUT, "/v1/threads", Some("/v1/threads")),
            None
        );
        assert_eq!(operation(&Method::GET, "/v1/nothing", None), None);
    }
}
