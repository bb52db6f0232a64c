//! Filters in the form of a request.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ContentType, JsonObject, Operator, Source};

/// The filters of a search, as the caller gave them. In JSON they are members of the search request, which reads them
/// ([`SearchContextRequest`](crate::SearchContextRequest)).
#[derive(Debug, Clone, Default, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterInput {
    /// Only entries of this thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// Only entries of this source.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Source>)]
    pub source: Option<String>,
    /// Only entries with at least one of these tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
    /// Only entries of this type.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ContentType>)]
    pub content_type: Option<String>,
    /// Values that metadata fields must equal, in type and case. Keys may be dotted paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    pub metadata: Option<JsonObject>,
    /// Conditions on metadata. All must hold. At most 100 together with `metadata`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_filters: Option<Vec<MetadataFilter>>,
    /// Only entries created at or after this ISO 8601 date or date-time. Without an offset it is in UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_date: Option<String>,
    /// Only entries created at or before this date or date-time. A date alone means its last moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_date: Option<String>,
}

/// One condition on one metadata field.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MetadataFilter {
    /// Path of the field: 1 to 32 segments of ASCII letters, digits, `_` and `-`, joined by dots; at most 512
    /// characters.
    #[serde(default)]
    #[schema(required, min_length = 1, example = "status")]
    pub key: String,
    /// How the field's value is compared; default: `eq`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Operator>)]
    pub operator: Option<String>,
    /// The value to compare with: a string, number or boolean, or a list of 1 to 100 of them for `in` and `not_in`.
    /// Absent for `exists`, `not_exists`, `is_null` and `is_not_null`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>, example = "active")]
    pub value: Option<Value>,
    /// Whether the case of strings matters; default: false. For `gt`, `gte`, `lt` and `lte` it always matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case_sensitive: Option<bool>,
}
