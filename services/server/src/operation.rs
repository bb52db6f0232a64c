//! The names of the operations, as metrics and the log have them.

/// One operation of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    StoreContext,
    StoreContextBatch,
    GetContextByIds,
    UpdateContext,
    UpdateContextBatch,
    DeleteContext,
    DeleteContextBatch,
    SearchContext,
    SemanticSearchContext,
    FtsSearchContext,
    HybridSearchContext,
    ListThreads,
    GetStatistics,
    CreateArtifact,
    ListArtifacts,
    SearchArtifacts,
    GetArtifact,
    UpdateArtifact,
    DeleteArtifact,
    ListArtifactVersions,
    GetArtifactVersion,
    RestoreArtifactVersion,
    DiffArtifactVersions,
    CreateApiKey,
    ListApiKeys,
    GetApiKey,
    UpdateApiKey,
    DeactivateApiKey,
}

impl Operation {
    /// The documented name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StoreContext => "store_context",
            Self::StoreContextBatch => "store_context_batch",
            Self::GetContextByIds => "get_context_by_ids",
            Self::UpdateContext => "update_context",
            Self::UpdateContextBatch => "update_context_batch",
            Self::DeleteContext => "delete_context",
            Self::DeleteContextBatch => "delete_context_batch",
            Self::SearchContext => "search_context",
            Self::SemanticSearchContext => "semantic_search_context",
            Self::FtsSearchContext => "fts_search_context",
            Self::HybridSearchContext => "hybrid_search_context",
            Self::ListThreads => "list_threads",
            Self::GetStatistics => "get_statistics",
            Self::CreateArtifact => "create_artifact",
            Self::ListArtifacts => "list_artifacts",
            Self::SearchArtifacts => "search_artifacts",
            Self::GetArtifact => "get_artifact",
            Self::UpdateArtifact => "update_artifact",
            Self::DeleteArtifact => "delete_artifact",
            Self::ListArtifactVersions => "list_artifact_versions",
            Self::GetArtifactVersion => "get_artifact_version",
            Self::RestoreArtifactVersion => "restore_artifact_version",
            Self::DiffArtifactVersions => "diff_artifact_versions",
            Self::CreateApiKey => "create_api_key",
            Self::ListApiKeys => "list_api_keys",
            Self::GetApiKey => "get_api_key",
            Self::UpdateApiKey => "update_api_key",
            Self::DeactivateApiKey => "deactivate_api_key",
        }
    }
}

/// How a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wire {
    /// gRPC or gRPC-Web.
    Grpc,
    /// REST.
    Rest,
}

impl Wire {
    /// The name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Rest => "rest",
        }
    }
}
