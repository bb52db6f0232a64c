//! The id generator: ids that sort by their creation time (RFC 9562, version 7).

use context_model::{ArtifactId, Timestamp};
use uuid::{NoContext, Uuid};

/// A unique id. It sorts after the ids that this process generated before it.
#[expect(clippy::disallowed_methods, reason = "this is the id generator")]
pub(crate) fn new_id() -> String {
    Uuid::now_v7().to_string()
}

/// A new id for an artifact that is created at this time. Ids of the same millisecond are in random order.
pub(crate) fn artifact_id(now: Timestamp) -> ArtifactId {
    let micros = u64::try_from(now.micros()).unwrap_or(0);
    let (seconds, nanos) = (
        micros / 1_000_000,
        u32::try_from(micros % 1_000_000 * 1000).unwrap_or(0),
    );
    ArtifactId::new(Uuid::new_v7(uuid::Timestamp::from_unix(
        NoContext, seconds, nanos,
    )))
}
