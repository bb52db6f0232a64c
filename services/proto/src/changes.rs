//! Conversions of `ListChanges` in both directions, and of `Watch` only as the server needs them.

use context_model::{
    Artifact, Change, Entry, Error, ListChangesReply, ListChangesRequest, Result, SnapshotEntry,
    WatchEvent, WatchFrame, WatchRequest,
};

use crate::reply::{missing, timestamp_from_pb, timestamp_to_pb, try_all};
use crate::request::{filters_from_pb, filters_to_pb};
use crate::v1 as pb;

impl TryFrom<pb::ListChangesRequest> for ListChangesRequest {
    type Error = Error;

    fn try_from(request: pb::ListChangesRequest) -> Result<Self> {
        let pb::ListChangesRequest {
            cursor,
            limit,
            wait_ms,
            filter,
            entity,
            include_body,
            preview_chars,
            min_revision,
        } = request;
        Ok(Self {
            cursor,
            limit,
            wait_ms,
            filters: filter.map(filters_from_pb).transpose()?.unwrap_or_default(),
            entity,
            include_body,
            preview_chars,
            min_revision,
        })
    }
}

impl From<ListChangesRequest> for pb::ListChangesRequest {
    fn from(request: ListChangesRequest) -> Self {
        let ListChangesRequest {
            cursor,
            limit,
            wait_ms,
            filters,
            entity,
            include_body,
            preview_chars,
            min_revision,
        } = request;
        Self {
            cursor,
            limit,
            wait_ms,
            filter: filters_to_pb(filters),
            entity,
            include_body,
            preview_chars,
            min_revision,
        }
    }
}

impl TryFrom<Change> for pb::Change {
    type Error = Error;

    fn try_from(change: Change) -> Result<Self> {
        let Change {
            revision,
            time,
            operation,
            entity,
            id,
            thread_id,
            version,
            commit_end,
            key_id,
            preview,
            context,
            artifact,
        } = change;
        Ok(Self {
            revision,
            time: Some(timestamp_to_pb(time)),
            operation,
            entity,
            id,
            thread_id,
            version,
            commit_end,
            key_id,
            preview,
            context: context.map(TryInto::try_into).transpose()?,
            artifact: artifact.map(Into::into),
        })
    }
}

impl TryFrom<pb::Change> for Change {
    type Error = Error;

    fn try_from(change: pb::Change) -> Result<Self> {
        let pb::Change {
            revision,
            time,
            operation,
            entity,
            id,
            thread_id,
            version,
            commit_end,
            key_id,
            preview,
            context,
            artifact,
        } = change;
        if id.is_empty() {
            return Err(missing("change"));
        }
        Ok(Self {
            revision,
            time: timestamp_from_pb(time)?,
            operation,
            entity,
            id,
            thread_id,
            version,
            commit_end,
            key_id,
            preview,
            context: context.map(Entry::try_from).transpose()?,
            artifact: artifact.map(Artifact::try_from).transpose()?,
        })
    }
}

impl TryFrom<ListChangesReply> for pb::ListChangesResponse {
    type Error = Error;

    fn try_from(reply: ListChangesReply) -> Result<Self> {
        let ListChangesReply {
            changes,
            next_cursor,
            has_more,
            revision,
            compacted_before,
        } = reply;
        Ok(Self {
            changes: try_all(changes)?,
            next_cursor,
            has_more,
            revision,
            compacted_before,
        })
    }
}

impl TryFrom<pb::ListChangesResponse> for ListChangesReply {
    type Error = Error;

    fn try_from(reply: pb::ListChangesResponse) -> Result<Self> {
        let pb::ListChangesResponse {
            changes,
            next_cursor,
            has_more,
            revision,
            compacted_before,
        } = reply;
        Ok(Self {
            changes: try_all(changes)?,
            next_cursor,
            has_more,
            revision,
            compacted_before,
        })
    }
}

impl TryFrom<pb::WatchRequest> for WatchRequest {
    type Error = Error;

    fn try_from(request: pb::WatchRequest) -> Result<Self> {
        let pb::WatchRequest {
            cursor,
            snapshot,
            filter,
            entity,
            include_body,
            preview_chars,
            min_revision,
        } = request;
        Ok(Self {
            cursor,
            snapshot,
            filters: filter.map(filters_from_pb).transpose()?.unwrap_or_default(),
            entity,
            include_body,
            preview_chars,
            min_revision,
        })
    }
}

impl TryFrom<SnapshotEntry> for pb::SnapshotEntry {
    type Error = Error;

    fn try_from(entry: SnapshotEntry) -> Result<Self> {
        let SnapshotEntry {
            entity,
            id,
            thread_id,
            version,
            preview,
            context,
            artifact,
        } = entry;
        Ok(Self {
            entity,
            id,
            thread_id,
            version,
            preview,
            context: context.map(TryInto::try_into).transpose()?,
            artifact: artifact.map(Into::into),
        })
    }
}

impl TryFrom<WatchEvent> for pb::WatchResponse {
    type Error = Error;

    fn try_from(event: WatchEvent) -> Result<Self> {
        use pb::watch_response::Frame;
        let WatchEvent { frame, cursor } = event;
        let has_left = frame.name() == "left";
        let frame = match frame {
            WatchFrame::Opened { revision } => Frame::Opened(pb::Opened { revision }),
            WatchFrame::Entry(entry) => Frame::Entry((*entry).try_into()?),
            WatchFrame::SnapshotEnd { revision } => {
                Frame::SnapshotEnd(pb::SnapshotEnd { revision })
            }
            WatchFrame::Change(change) if has_left => Frame::Left((*change).try_into()?),
            WatchFrame::Change(change) => Frame::Change((*change).try_into()?),
            WatchFrame::Bookmark { revision } => Frame::Bookmark(pb::Bookmark { revision }),
            WatchFrame::Resync {
                reason,
                oldest_cursor,
            } => Frame::Resync(pb::Resync {
                reason: reason.to_owned(),
                oldest_cursor: oldest_cursor.map(Into::into),
            }),
            WatchFrame::End { reason } => Frame::End(pb::End {
                reason: reason.to_owned(),
            }),
        };
        Ok(Self {
            cursor: cursor.unwrap_or_default(),
            frame: Some(frame),
        })
    }
}
