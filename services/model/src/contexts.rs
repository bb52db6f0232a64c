use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    Entry, ImageInput, JsonObject, Metadata, MetadataChange, NewImage, Source, Tags, ThreadId,
};

/// Reads a context id from an integer or from a decimal string, which JavaScript and language models often send.
fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    struct Visitor;
    impl serde::de::Visitor<'_> for Visitor {
        type Value = i64;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an integer")
        }
        fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<i64, E> {
            Ok(value)
        }
        fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<i64, E> {
            // A value beyond `i64` is also beyond the range of ids. The range check reports it.
            Ok(i64::try_from(value).unwrap_or(i64::MAX))
        }
        fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<i64, E> {
            value
                .trim()
                .parse()
                .map_err(|_| E::invalid_value(serde::de::Unexpected::Str(value), &self))
        }
    }
    deserializer.deserialize_any(Visitor)
}

#[derive(Deserialize)]
struct Id(#[serde(deserialize_with = "id")] i64);

fn ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<i64>, D::Error> {
    Ok(Vec::<Id>::deserialize(deserializer)?
        .into_iter()
        .map(|Id(id)| id)
        .collect())
}

fn optional_ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<i64>>, D::Error> {
    Ok(Option::<Vec<Id>>::deserialize(deserializer)?
        .map(|ids| ids.into_iter().map(|Id(id)| id).collect()))
}

/// An entry to store.
// Required strings default to "", so that the same rule reports a missing one on every transport.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreContextRequest {
    /// The conversation or task the entry belongs to: 1 to 256 characters.
    #[serde(default)]
    #[schema(required, min_length = 1, max_length = 256, example = "project-123")]
    pub thread_id: String,
    /// Who wrote it.
    #[serde(default)]
    #[schema(required, value_type = Source)]
    pub source: String,
    /// The text, stored exactly as given; not blank, at most MAX_TEXT_CHARS characters.
    #[serde(default)]
    #[schema(
        required,
        min_length = 1,
        example = "Chose PostgreSQL for the billing service."
    )]
    pub text: String,
    /// Up to 10 images.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 10)]
    pub images: Option<Vec<ImageInput>>,
    /// Any JSON object, at most 64 levels deep and 1 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    pub metadata: Option<JsonObject>,
    /// Up to 100 tags of up to 128 characters. They are trimmed and lower-cased, and duplicates are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
}

/// The result of storing one entry.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct StoreContextReply {
    /// Always true.
    pub success: bool,
    /// The entry's id.
    pub context_id: i64,
    /// The thread, trimmed.
    pub thread_id: String,
    /// What happened, as a sentence.
    pub message: String,
    /// The entry's version.
    pub version: i64,
    /// The owner's revision after the write.
    pub revision: i64,
    /// True if the request repeated the thread's newest entry, so that no second entry was stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

/// Up to 100 entries to store together.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreContextBatchRequest {
    /// 1 to 100 entries.
    #[serde(default)]
    #[schema(required, min_items = 1, max_items = 100)]
    pub entries: Vec<StoreContextRequest>,
    /// If true, either all entries are stored or none. If false, each is stored or fails alone. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atomic: Option<bool>,
}

/// The result of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct BatchReply {
    /// True if no item failed.
    pub success: bool,
    /// Number of items in the request.
    pub total: i64,
    /// Number of items that succeeded.
    pub succeeded: i64,
    /// Number of items that failed.
    pub failed: i64,
    /// One result for each item, in the order of the request.
    pub results: Vec<BatchResult>,
    /// What happened, as a sentence.
    pub message: String,
    /// The owner's revision after the write.
    pub revision: i64,
}

/// The result of one item of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct BatchResult {
    /// The item's position in the request, from 0.
    pub index: i64,
    /// Whether it succeeded.
    pub success: bool,
    /// The entry's id; null if an entry could not be stored.
    #[schema(required)]
    pub context_id: Option<i64>,
    /// Why it failed; null if it succeeded.
    #[schema(required)]
    pub error: Option<String>,
    /// The fields that an update gave; absent in the result of a store or of a failed update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated_fields: Option<Vec<String>>,
    /// True if the item repeated its thread's newest entry, so that no second entry was stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub duplicate: bool,
}

/// Changes to one entry. At least one of text, metadata, metadata_patch, tags and images is required.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateContextRequest {
    /// The entry to update.
    #[serde(default, deserialize_with = "id")]
    #[schema(required, minimum = 1, maximum = 9007199254740991i64, example = 42)]
    pub context_id: i64,
    /// A new text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Metadata that replaces the stored object; not together with `metadata_patch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    pub metadata: Option<JsonObject>,
    /// An RFC 7396 merge patch on the stored metadata. A null deletes its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    pub metadata_patch: Option<JsonObject>,
    /// Tags that replace the stored ones; `[]` clears them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Images that replace the stored ones; `[]` clears them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 10)]
    pub images: Option<Vec<ImageInput>>,
    /// The version that the caller read. The update is refused if the entry has changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<i64>,
}

impl UpdateContextRequest {
    /// The names of the given fields, for `updated_fields` in the reply.
    #[must_use]
    pub fn updated_fields(&self) -> Vec<String> {
        let Self {
            context_id: _,
            text,
            metadata,
            metadata_patch,
            tags,
            images,
            expected_version: _,
        } = self;
        [
            (text.is_some(), "text_content"),
            (metadata.is_some() || metadata_patch.is_some(), "metadata"),
            (tags.is_some(), "tags"),
            (images.is_some(), "images"),
        ]
        .into_iter()
        .filter(|(given, _)| *given)
        .map(|(_, name)| name.to_owned())
        .collect()
    }
}

/// Changes to one entry. At least one of text, metadata, metadata_patch, tags and images is required.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateContextBody {
    /// A new text.
    pub text: Option<String>,
    /// Metadata that replaces the stored object; not together with `metadata_patch`.
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    pub metadata: Option<JsonObject>,
    /// An RFC 7396 merge patch on the stored metadata. A null deletes its key.
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    pub metadata_patch: Option<JsonObject>,
    /// Tags that replace the stored ones; `[]` clears them.
    pub tags: Option<Vec<String>>,
    /// Images that replace the stored ones; `[]` clears them.
    #[schema(max_items = 10)]
    pub images: Option<Vec<ImageInput>>,
    /// The version that the caller read. It has the same effect as `If-Match`.
    pub expected_version: Option<i64>,
}

impl UpdateContextBody {
    /// The update of the entry with this id.
    #[must_use]
    pub fn for_context(self, context_id: i64) -> UpdateContextRequest {
        let Self {
            text,
            metadata,
            metadata_patch,
            tags,
            images,
            expected_version,
        } = self;
        UpdateContextRequest {
            context_id,
            text,
            metadata,
            metadata_patch,
            tags,
            images,
            expected_version,
        }
    }
}

/// The result of updating one entry.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct UpdateContextReply {
    /// Always true.
    pub success: bool,
    /// The entry's id.
    pub context_id: i64,
    /// The fields that the request gave: any of `text_content`, `metadata`, `tags` and `images`.
    pub updated_fields: Vec<String>,
    /// What happened, as a sentence.
    pub message: String,
    /// The entry's version after the update.
    pub version: i64,
    /// The owner's revision after the write.
    pub revision: i64,
}

/// Up to 100 updates to make together.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateContextBatchRequest {
    /// 1 to 100 updates.
    #[serde(default)]
    #[schema(required, min_items = 1, max_items = 100)]
    pub updates: Vec<UpdateContextRequest>,
    /// If true, either all updates are made or none. If false, each is made or fails alone. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub atomic: Option<bool>,
}

/// Which entries to fetch in full.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GetContextByIdsRequest {
    /// 1 to 100 ids. Ids that do not exist are skipped.
    #[serde(default, deserialize_with = "ids")]
    #[schema(required, min_items = 1, max_items = 100)]
    pub context_ids: Vec<i64>,
    /// Whether the reply includes images; default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_images: Option<bool>,
    /// The `revision` of an earlier reply. The result shows that state or a later one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_revision: Option<i64>,
}

/// Entries in full, newest first.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct GetContextByIdsReply {
    /// The entries that exist.
    pub result: Vec<Entry>,
    /// The owner's revision that this reply shows.
    pub revision: i64,
}

/// Which entries to delete. Exactly one of `context_ids` and `thread_id` is required.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteContextRequest {
    /// 1 to 1000 ids. Ids that do not exist are not counted in `deleted_count`.
    #[serde(
        default,
        deserialize_with = "optional_ids",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(min_items = 1, max_items = 1000)]
    pub context_ids: Option<Vec<i64>>,
    /// All entries of this thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

/// The result of a deletion.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct DeleteContextReply {
    /// Always true.
    pub success: bool,
    /// Number of deleted entries.
    pub deleted_count: i64,
    /// What happened, as a sentence.
    pub message: String,
    /// The owner's revision after the write.
    pub revision: i64,
}

/// Which entries to delete. An entry must meet every given criterion. `source` alone is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteContextBatchRequest {
    /// 1 to 1000 ids.
    #[serde(
        default,
        deserialize_with = "optional_ids",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(min_items = 1, max_items = 1000)]
    pub context_ids: Option<Vec<i64>>,
    /// 1 to 1000 thread ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 1000)]
    pub thread_ids: Option<Vec<String>>,
    /// Entries of this source; only together with another criterion.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Source>)]
    pub source: Option<String>,
    /// Entries created more than this many days ago, 1 to 36 500.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 36500)]
    pub older_than_days: Option<i64>,
}

/// The result of a deletion by criteria.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct DeleteContextBatchReply {
    /// Always true.
    pub success: bool,
    /// Number of deleted entries.
    pub deleted_count: i64,
    /// The names of the given criteria.
    pub criteria_used: Vec<String>,
    /// What happened, as a sentence.
    pub message: String,
    /// The owner's revision after the write.
    pub revision: i64,
}

/// A validated entry to store. `None` means that the request does not have the field. The retransmit rule distinguishes
/// this from an empty field.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEntry {
    /// The thread.
    pub thread_id: ThreadId,
    /// Who wrote it.
    pub source: Source,
    /// The text.
    pub text: String,
    /// The images, in order.
    pub images: Option<Vec<NewImage>>,
    /// Metadata.
    pub metadata: Option<Metadata>,
    /// Tags.
    pub tags: Option<Tags>,
}

/// A validated update of one entry.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryUpdate {
    /// The entry.
    pub id: i64,
    /// A new text.
    pub text: Option<String>,
    /// The change of the metadata.
    pub metadata: Option<MetadataChange>,
    /// New tags.
    pub tags: Option<Tags>,
    /// New images.
    pub images: Option<Vec<NewImage>>,
    /// The update is rejected if the entry has another version.
    pub expected_version: Option<i64>,
}
