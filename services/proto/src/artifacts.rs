//! Conversions of artifacts, in both directions.

use context_model::{
    Artifact, ArtifactEdit, ArtifactHit, ArtifactSummary, ArtifactVersionSummary,
    CreateArtifactReply, CreateArtifactRequest, DeleteArtifactReply, DeleteArtifactRequest,
    DeleteArtifactsReply, DeleteArtifactsRequest, DiffArtifactVersionsReply,
    DiffArtifactVersionsRequest, Error, GetArtifactReply, GetArtifactRequest,
    GetArtifactVersionReply, GetArtifactVersionRequest, ListArtifactVersionsReply,
    ListArtifactVersionsRequest, ListArtifactsReply, ListArtifactsRequest, MoveArtifactsReply,
    MoveArtifactsRequest, RestoreArtifactVersionReply, RestoreArtifactVersionRequest, Result,
    SearchArtifactsReply, SearchArtifactsRequest, UpdateArtifactReply, UpdateArtifactRequest,
};

use crate::object::Object;
use crate::reply::{all, missing, timestamp_from_pb, timestamp_to_pb, try_all};
use crate::request::{conditions_from_pb, conditions_to_pb};
use crate::v1 as pb;
use crate::value::object_from_pb;

same_fields! {
    GetArtifactRequest = GetArtifactRequest { artifact_id, path, min_revision }
    DeleteArtifactRequest = DeleteArtifactRequest { artifact_id }
    DeleteArtifactReply = DeleteArtifactResponse { message, artifact_id, revision }
    MoveArtifactsRequest = MoveArtifactsRequest { path, to }
    MoveArtifactsReply = MoveArtifactsResponse { moved_count, message, revision }
    DeleteArtifactsRequest = DeleteArtifactsRequest { path }
    DeleteArtifactsReply = DeleteArtifactsResponse { deleted_count, message, revision }
    ListArtifactVersionsRequest = ListArtifactVersionsRequest { artifact_id, min_revision }
    GetArtifactVersionRequest = GetArtifactVersionRequest { artifact_id, version_number, min_revision }
    RestoreArtifactVersionRequest = RestoreArtifactVersionRequest { artifact_id, version_number, expected_version }
    RestoreArtifactVersionReply = RestoreArtifactVersionResponse { success, message, current_version, title, revision }
    DiffArtifactVersionsRequest = DiffArtifactVersionsRequest { artifact_id, from_version, to_version, min_revision }
    DiffArtifactVersionsReply = DiffArtifactVersionsResponse { artifact_id, from_version, to_version, changes, diff, revision }
    ArtifactEdit = ArtifactEdit { old_str, insert_line, new_str }
}

/// Converts a request with conditions on metadata, in both directions. The other fields have the same names on both
/// sides.
macro_rules! with_conditions {
    ($($name:ident { $($field:ident),* })*) => {$(
        impl TryFrom<pb::$name> for $name {
            type Error = Error;

            fn try_from(request: pb::$name) -> Result<Self> {
                let pb::$name { $($field,)* metadata_filters } = request;
                let metadata_filters = conditions_from_pb(metadata_filters)?;
                Ok(Self { $($field,)* metadata_filters })
            }
        }

        impl From<$name> for pb::$name {
            fn from(request: $name) -> Self {
                let $name { $($field,)* metadata_filters } = request;
                let metadata_filters = conditions_to_pb(metadata_filters);
                Self { $($field,)* metadata_filters }
            }
        }
    )*};
}

with_conditions! {
    ListArtifactsRequest { limit, offset, cursor, path_prefix, min_revision }
    SearchArtifactsRequest { query, mode, limit, min_revision }
}

impl TryFrom<pb::CreateArtifactRequest> for CreateArtifactRequest {
    type Error = Error;

    fn try_from(request: pb::CreateArtifactRequest) -> Result<Self> {
        let pb::CreateArtifactRequest {
            content,
            title,
            metadata,
            path,
        } = request;
        Ok(Self {
            content,
            title,
            metadata: metadata
                .map(|m| object_from_pb(m, "metadata"))
                .transpose()?,
            path,
        })
    }
}

impl From<CreateArtifactRequest> for pb::CreateArtifactRequest {
    fn from(request: CreateArtifactRequest) -> Self {
        let CreateArtifactRequest {
            content,
            title,
            metadata,
            path,
        } = request;
        Self {
            content,
            title,
            metadata: metadata.as_ref().map(Object::from),
            path,
        }
    }
}

impl From<CreateArtifactReply> for pb::CreateArtifactResponse {
    fn from(reply: CreateArtifactReply) -> Self {
        let CreateArtifactReply {
            id,
            title,
            content,
            metadata,
            path,
            created_at,
            message,
            version,
            revision,
        } = reply;
        let (metadata, created_at) = (
            Some(Object::from(&metadata)),
            Some(timestamp_to_pb(created_at)),
        );
        Self {
            id,
            title,
            content,
            metadata,
            path,
            created_at,
            message,
            version,
            revision,
        }
    }
}

impl TryFrom<pb::CreateArtifactResponse> for CreateArtifactReply {
    type Error = Error;

    fn try_from(reply: pb::CreateArtifactResponse) -> Result<Self> {
        let pb::CreateArtifactResponse {
            id,
            title,
            content,
            metadata,
            path,
            created_at,
            message,
            version,
            revision,
        } = reply;
        let metadata = object_from_pb(metadata.unwrap_or_default(), "metadata")?;
        Ok(Self {
            id,
            title,
            content,
            metadata,
            path,
            created_at: timestamp_from_pb(created_at)?,
            message,
            version,
            revision,
        })
    }
}

impl TryFrom<pb::UpdateArtifactRequest> for UpdateArtifactRequest {
    type Error = Error;

    fn try_from(request: pb::UpdateArtifactRequest) -> Result<Self> {
        let pb::UpdateArtifactRequest {
            artifact_id,
            title,
            content,
            metadata,
            path,
            edits,
            expected_version,
            return_content,
        } = request;
        let metadata = metadata
            .map(|m| object_from_pb(m, "metadata"))
            .transpose()?;
        Ok(Self {
            artifact_id,
            title,
            content,
            metadata,
            path,
            edits: edits.map(|list| all(list.edits)),
            expected_version,
            return_content,
        })
    }
}

impl From<UpdateArtifactRequest> for pb::UpdateArtifactRequest {
    fn from(request: UpdateArtifactRequest) -> Self {
        let UpdateArtifactRequest {
            artifact_id,
            title,
            content,
            metadata,
            path,
            edits,
            expected_version,
            return_content,
        } = request;
        let edits = edits.map(|edits| pb::ArtifactEditList { edits: all(edits) });
        Self {
            artifact_id,
            title,
            content,
            metadata: metadata.as_ref().map(Object::from),
            path,
            edits,
            expected_version,
            return_content,
        }
    }
}

impl From<Artifact> for pb::Artifact {
    fn from(artifact: Artifact) -> Self {
        let Artifact {
            id,
            title,
            content,
            metadata,
            path,
            created_at,
            updated_at,
            version,
        } = artifact;
        Self {
            id,
            title,
            content,
            metadata: Some(Object::from(&metadata)),
            path,
            created_at: Some(timestamp_to_pb(created_at)),
            updated_at: Some(timestamp_to_pb(updated_at)),
            version,
        }
    }
}

impl TryFrom<pb::Artifact> for Artifact {
    type Error = Error;

    fn try_from(artifact: pb::Artifact) -> Result<Self> {
        let pb::Artifact {
            id,
            title,
            content,
            metadata,
            path,
            created_at,
            updated_at,
            version,
        } = artifact;
        Ok(Self {
            id,
            title,
            content,
            metadata: object_from_pb(metadata.unwrap_or_default(), "metadata")?,
            path,
            created_at: timestamp_from_pb(created_at)?,
            updated_at: timestamp_from_pb(updated_at)?,
            version,
        })
    }
}

/// The artifact of a reply; an error if there is none.
fn artifact(artifact: Option<pb::Artifact>) -> Result<Artifact> {
    artifact.ok_or_else(|| missing("artifact"))?.try_into()
}

impl From<GetArtifactReply> for pb::GetArtifactResponse {
    fn from(reply: GetArtifactReply) -> Self {
        let GetArtifactReply { artifact, revision } = reply;
        Self {
            artifact: Some(artifact.into()),
            revision,
        }
    }
}

impl TryFrom<pb::GetArtifactResponse> for GetArtifactReply {
    type Error = Error;

    fn try_from(reply: pb::GetArtifactResponse) -> Result<Self> {
        let pb::GetArtifactResponse {
            artifact: found,
            revision,
        } = reply;
        Ok(Self {
            artifact: artifact(found)?,
            revision,
        })
    }
}

impl From<UpdateArtifactReply> for pb::UpdateArtifactResponse {
    fn from(reply: UpdateArtifactReply) -> Self {
        let UpdateArtifactReply {
            id,
            title,
            content,
            metadata,
            path,
            created_at,
            updated_at,
            version,
            message,
            revision,
        } = reply;
        let artifact = pb::Artifact {
            id,
            title,
            content: content.unwrap_or_default(),
            metadata: Some(Object::from(&metadata)),
            path,
            created_at: Some(timestamp_to_pb(created_at)),
            updated_at: Some(timestamp_to_pb(updated_at)),
            version,
        };
        Self {
            artifact: Some(artifact),
            message,
            revision,
        }
    }
}

impl TryFrom<pb::UpdateArtifactResponse> for UpdateArtifactReply {
    type Error = Error;

    fn try_from(reply: pb::UpdateArtifactResponse) -> Result<Self> {
        let pb::UpdateArtifactResponse {
            artifact: updated,
            message,
            revision,
        } = reply;
        let Artifact {
            id,
            title,
            content,
            metadata,
            path,
            created_at,
            updated_at,
            version,
        } = artifact(updated)?;
        Ok(Self {
            id,
            title,
            // Content is never blank. It is empty only if the service left it out.
            content: Some(content).filter(|content| !content.is_empty()),
            metadata,
            path,
            created_at,
            updated_at,
            version,
            message,
            revision,
        })
    }
}

impl From<ArtifactSummary> for pb::ArtifactSummary {
    fn from(summary: ArtifactSummary) -> Self {
        let ArtifactSummary {
            id,
            title,
            content_preview,
            metadata,
            path,
            created_at,
            updated_at,
        } = summary;
        Self {
            id,
            title,
            content_preview,
            metadata: Some(Object::from(&metadata)),
            path,
            created_at: Some(timestamp_to_pb(created_at)),
            updated_at: Some(timestamp_to_pb(updated_at)),
        }
    }
}

impl TryFrom<pb::ArtifactSummary> for ArtifactSummary {
    type Error = Error;

    fn try_from(summary: pb::ArtifactSummary) -> Result<Self> {
        let pb::ArtifactSummary {
            id,
            title,
            content_preview,
            metadata,
            path,
            created_at,
            updated_at,
        } = summary;
        Ok(Self {
            id,
            title,
            content_preview,
            metadata: object_from_pb(metadata.unwrap_or_default(), "metadata")?,
            path,
            created_at: timestamp_from_pb(created_at)?,
            updated_at: timestamp_from_pb(updated_at)?,
        })
    }
}

impl From<ListArtifactsReply> for pb::ListArtifactsResponse {
    fn from(reply: ListArtifactsReply) -> Self {
        let ListArtifactsReply {
            result,
            total,
            has_more,
            next_cursor,
            revision,
        } = reply;
        Self {
            artifacts: all(result),
            total,
            has_more,
            next_cursor,
            revision,
        }
    }
}

impl TryFrom<pb::ListArtifactsResponse> for ListArtifactsReply {
    type Error = Error;

    fn try_from(reply: pb::ListArtifactsResponse) -> Result<Self> {
        let pb::ListArtifactsResponse {
            artifacts,
            total,
            has_more,
            next_cursor,
            revision,
        } = reply;
        Ok(Self {
            result: try_all(artifacts)?,
            total,
            has_more,
            next_cursor,
            revision,
        })
    }
}

impl From<ArtifactHit> for pb::ArtifactHit {
    fn from(hit: ArtifactHit) -> Self {
        let ArtifactHit {
            id,
            title,
            content_preview,
            metadata,
            path,
            relevance_context,
            created_at,
            relevance,
            snippet,
        } = hit;
        let (metadata, created_at) = (
            Some(Object::from(&metadata)),
            Some(timestamp_to_pb(created_at)),
        );
        Self {
            id,
            title,
            content_preview,
            metadata,
            path,
            relevance_context,
            created_at,
            relevance,
            snippet,
        }
    }
}

impl TryFrom<pb::ArtifactHit> for ArtifactHit {
    type Error = Error;

    fn try_from(hit: pb::ArtifactHit) -> Result<Self> {
        let pb::ArtifactHit {
            id,
            title,
            content_preview,
            metadata,
            path,
            relevance_context,
            created_at,
            relevance,
            snippet,
        } = hit;
        let metadata = object_from_pb(metadata.unwrap_or_default(), "metadata")?;
        Ok(Self {
            id,
            title,
            content_preview,
            metadata,
            path,
            relevance_context,
            created_at: timestamp_from_pb(created_at)?,
            relevance,
            snippet,
        })
    }
}

impl From<SearchArtifactsReply> for pb::SearchArtifactsResponse {
    fn from(reply: SearchArtifactsReply) -> Self {
        let SearchArtifactsReply {
            result,
            has_more,
            revision,
        } = reply;
        Self {
            artifacts: all(result),
            has_more,
            revision,
        }
    }
}

impl TryFrom<pb::SearchArtifactsResponse> for SearchArtifactsReply {
    type Error = Error;

    fn try_from(reply: pb::SearchArtifactsResponse) -> Result<Self> {
        let pb::SearchArtifactsResponse {
            artifacts,
            has_more,
            revision,
        } = reply;
        Ok(Self {
            result: try_all(artifacts)?,
            has_more,
            revision,
        })
    }
}

impl From<ArtifactVersionSummary> for pb::ArtifactVersionSummary {
    fn from(summary: ArtifactVersionSummary) -> Self {
        let ArtifactVersionSummary {
            version,
            title,
            updated_at,
            changes,
        } = summary;
        Self {
            version,
            title,
            updated_at: Some(timestamp_to_pb(updated_at)),
            changes,
        }
    }
}

impl TryFrom<pb::ArtifactVersionSummary> for ArtifactVersionSummary {
    type Error = Error;

    fn try_from(summary: pb::ArtifactVersionSummary) -> Result<Self> {
        let pb::ArtifactVersionSummary {
            version,
            title,
            updated_at,
            changes,
        } = summary;
        Ok(Self {
            version,
            title,
            updated_at: timestamp_from_pb(updated_at)?,
            changes,
        })
    }
}

impl From<ListArtifactVersionsReply> for pb::ListArtifactVersionsResponse {
    fn from(reply: ListArtifactVersionsReply) -> Self {
        let ListArtifactVersionsReply {
            artifact_id,
            current_version,
            total_edits,
            recent_versions,
            has_more,
            revision,
        } = reply;
        Self {
            artifact_id,
            current_version,
            total_edits,
            recent_versions: all(recent_versions),
            has_more,
            revision,
        }
    }
}

impl TryFrom<pb::ListArtifactVersionsResponse> for ListArtifactVersionsReply {
    type Error = Error;

    fn try_from(reply: pb::ListArtifactVersionsResponse) -> Result<Self> {
        let pb::ListArtifactVersionsResponse {
            artifact_id,
            current_version,
            total_edits,
            recent_versions,
            has_more,
            revision,
        } = reply;
        Ok(Self {
            artifact_id,
            current_version,
            total_edits,
            recent_versions: try_all(recent_versions)?,
            has_more,
            revision,
        })
    }
}

impl From<GetArtifactVersionReply> for pb::GetArtifactVersionResponse {
    fn from(reply: GetArtifactVersionReply) -> Self {
        let GetArtifactVersionReply {
            version,
            title,
            content,
            metadata,
            updated_at,
            revision,
        } = reply;
        let (metadata, updated_at) = (
            Some(Object::from(&metadata)),
            Some(timestamp_to_pb(updated_at)),
        );
        Self {
            version,
            title,
            content,
            metadata,
            updated_at,
            revision,
        }
    }
}

impl TryFrom<pb::GetArtifactVersionResponse> for GetArtifactVersionReply {
    type Error = Error;

    fn try_from(reply: pb::GetArtifactVersionResponse) -> Result<Self> {
        let pb::GetArtifactVersionResponse {
            version,
            title,
            content,
            metadata,
            updated_at,
            revision,
        } = reply;
        let metadata = object_from_pb(metadata.unwrap_or_default(), "metadata")?;
        Ok(Self {
            version,
            title,
            content,
            metadata,
            updated_at: timestamp_from_pb(updated_at)?,
            revision,
        })
    }
}
