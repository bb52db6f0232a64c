//! The operations of the API: name, resource, required scope and deadline class of each.

use crate::Scope;

/// The resource that an operation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Context entries, threads and statistics.
    Context,
    /// Artifacts and their versions.
    Artifact,
    /// Changes of entries and artifacts.
    Change,
    /// API keys, and information about the caller.
    ApiKey,
}

/// The kind of work, which decides the deadline of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeadlineClass {
    /// A read.
    Read,
    /// A single write.
    Write,
    /// A batch of writes.
    Batch,
}

/// Declares [`Operation`] from one table with a line for each operation.
macro_rules! operations {
    ($($(#[$doc:meta])* $variant:ident $name:literal $resource:ident $scope:expr, $class:ident;)*) => {
        /// One operation of the API. gRPC methods, REST operation ids and MCP tools are named after
        /// it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Operation {
            $($(#[$doc])* $variant,)*
        }

        impl Operation {
            /// Every operation.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The documented name, such as `store_context`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The name of its gRPC method, such as `StoreContext`.
            #[must_use]
            pub const fn method(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant)),* }
            }

            /// The resource it is about.
            #[must_use]
            pub const fn resource(self) -> Resource {
                match self { $(Self::$variant => Resource::$resource),* }
            }

            /// The required scope; `None` if any valid credentials suffice.
            #[must_use]
            pub const fn scope(self) -> Option<Scope> {
                match self { $(Self::$variant => $scope),* }
            }

            /// Its deadline class.
            #[must_use]
            pub const fn deadline_class(self) -> DeadlineClass {
                match self { $(Self::$variant => DeadlineClass::$class),* }
            }
        }
    };
}

const READ: Option<Scope> = Some(Scope::Read);
const WRITE: Option<Scope> = Some(Scope::Write);
const DELETE: Option<Scope> = Some(Scope::Delete);
const MANAGE: Option<Scope> = Some(Scope::Manage);

operations! {
    /// Stores one entry.
    StoreContext "store_context" Context WRITE, Write;
    /// Stores up to 100 entries.
    StoreContextBatch "store_context_batch" Context WRITE, Batch;
    /// Returns entries by id.
    GetContextByIds "get_context_by_ids" Context READ, Read;
    /// Changes one entry.
    UpdateContext "update_context" Context WRITE, Write;
    /// Changes up to 100 entries.
    UpdateContextBatch "update_context_batch" Context WRITE, Batch;
    /// Deletes entries by id or thread.
    DeleteContext "delete_context" Context DELETE, Write;
    /// Deletes entries by criteria.
    DeleteContextBatch "delete_context_batch" Context DELETE, Batch;
    /// Searches by metadata and other filters.
    SearchContext "search_context" Context READ, Read;
    /// Semantic search.
    SemanticSearchContext "semantic_search_context" Context READ, Read;
    /// Full-text search.
    FtsSearchContext "fts_search_context" Context READ, Read;
    /// Full-text and semantic search, combined.
    HybridSearchContext "hybrid_search_context" Context READ, Read;
    /// Lists threads.
    ListThreads "list_threads" Context READ, Read;
    /// Returns one thread.
    GetThread "get_thread" Context READ, Read;
    /// Lists tags.
    ListTags "list_tags" Context READ, Read;
    /// Lists metadata keys.
    ListMetadataKeys "list_metadata_keys" Context READ, Read;
    /// Lists the values of a metadata key.
    ListMetadataValues "list_metadata_values" Context READ, Read;
    /// Counts entries by day.
    ListDays "list_days" Context READ, Read;
    /// Returns counts and the state of every feature.
    GetStatistics "get_statistics" Context READ, Read;
    /// Creates an artifact.
    CreateArtifact "create_artifact" Artifact WRITE, Write;
    /// Lists artifacts.
    ListArtifacts "list_artifacts" Artifact READ, Read;
    /// Searches artifacts.
    SearchArtifacts "search_artifacts" Artifact READ, Read;
    /// Returns an artifact.
    GetArtifact "get_artifact" Artifact READ, Read;
    /// Changes an artifact.
    UpdateArtifact "update_artifact" Artifact WRITE, Write;
    /// Deletes an artifact with all versions.
    DeleteArtifact "delete_artifact" Artifact DELETE, Write;
    /// Moves the artifacts at and below a path to another path.
    MoveArtifacts "move_artifacts" Artifact WRITE, Batch;
    /// Deletes the artifacts at and below a path.
    DeleteArtifacts "delete_artifacts" Artifact DELETE, Batch;
    /// Lists the versions of an artifact.
    ListArtifactVersions "list_artifact_versions" Artifact READ, Read;
    /// Returns one version of an artifact.
    GetArtifactVersion "get_artifact_version" Artifact READ, Read;
    /// Creates a new version from an earlier one.
    RestoreArtifactVersion "restore_artifact_version" Artifact WRITE, Write;
    /// Compares two versions.
    DiffArtifactVersions "diff_artifact_versions" Artifact READ, Read;
    /// Lists changes of entries and artifacts.
    ListChanges "changes_since" Change READ, Read;
    /// Follows changes of entries and artifacts.
    Watch "watch" Change READ, Read;
    /// Creates an API key.
    CreateApiKey "create_api_key" ApiKey MANAGE, Write;
    /// Lists API keys.
    ListApiKeys "list_api_keys" ApiKey MANAGE, Read;
    /// Returns one API key.
    GetApiKey "get_api_key" ApiKey MANAGE, Read;
    /// Changes an API key.
    UpdateApiKey "update_api_key" ApiKey MANAGE, Write;
    /// Deactivates an API key.
    DeactivateApiKey "deactivate_api_key" ApiKey MANAGE, Write;
    /// Returns what the caller's credentials allow. It is not rate-limited, because the gateway calls it for MCP calls
    /// over HTTP, which would otherwise count twice.
    GetCaller "get_caller" ApiKey None, Read;
}

impl Operation {
    /// The operation with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|operation| operation.as_str() == name)
    }

    /// Whether it is a tool of the gateway. Streams and the administration of keys are not for agents.
    /// Each tool takes space in every agent's context, so operations for other programs are not tools
    /// either.
    #[must_use]
    pub const fn is_tool(self) -> bool {
        !matches!(self.resource(), Resource::ApiKey)
            && !matches!(
                self,
                Self::Watch
                    | Self::GetThread
                    | Self::ListTags
                    | Self::MoveArtifacts
                    | Self::DeleteArtifacts
                    | Self::ListMetadataKeys
                    | Self::ListMetadataValues
                    | Self::ListDays
            )
    }

    /// Whether it changes stored data.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(
            self.deadline_class(),
            DeadlineClass::Write | DeadlineClass::Batch
        )
    }

    /// The gRPC service it belongs to, such as `context.v1.ContextService`.
    #[must_use]
    pub const fn service(self) -> &'static str {
        match self.resource() {
            Resource::Context => "context.v1.ContextService",
            Resource::Artifact => "context.v1.ArtifactService",
            Resource::Change => "context.v1.ChangeService",
            Resource::ApiKey => "context.v1.ApiKeyService",
        }
    }

    /// The operation of a gRPC request path, such as `/context.v1.ContextService/StoreContext`.
    #[must_use]
    pub fn of_grpc_path(path: &str) -> Option<Self> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        Self::ALL
            .iter()
            .copied()
            .find(|operation| operation.method() == method && operation.service() == service)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_found_by_its_name_and_its_grpc_path() {
        for operation in Operation::ALL.iter().copied() {
            assert_eq!(Operation::parse(operation.as_str()), Some(operation));
            let path = format!("/{}/{}", operation.service(), operation.method());
            assert_eq!(Operation::of_grpc_path(&path), Some(operation));
        }
        for unknown in [
            "",
            "/",
            "/context.v1.ContextService",
            "/context.v1.ContextService/",
            "/context.v1.ArtifactService/StoreContext",
        ] {
            assert_eq!(Operation::of_grpc_path(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_write_needs_more_than_read() {
        for operation in Operation::ALL.iter().copied() {
            assert!(
                !operation.is_write() || operation.scope() != Some(Scope::Read),
                "{operation:?}"
            );
        }
    }
}
