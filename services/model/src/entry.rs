use serde::{Deserialize, Serialize};

use crate::{ImageInput, ObjectText, Timestamp, Violations};

/// Who wrote an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A person.
    User,
    /// An agent.
    Agent,
}

impl Source {
    /// The name in requests and replies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
        }
    }

    /// The source with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::User, Self::Agent]
            .into_iter()
            .find(|source| source.as_str() == name)
    }

    /// Parses exactly `user` or `agent`; otherwise adds a violation and returns `None`.
    pub fn parse(given: &str, field: &str, violations: &mut Violations) -> Option<Self> {
        match given {
            "user" => Some(Self::User),
            "agent" => Some(Self::Agent),
            "" => {
                violations.push(
                    field,
                    format!("`{field}` is required and must be `user` or `agent`"),
                );
                None
            }
            other => {
                violations.push(
                    field,
                    format!(
                        "`{field}` is `{}`; it must be `user` or `agent`",
                        shorten(other)
                    ),
                );
                None
            }
        }
    }
}

/// Whether an entry has images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContentType {
    /// Text alone.
    Text,
    /// Text and at least one image.
    Multimodal,
}

impl ContentType {
    /// The name in requests and replies.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Multimodal => "multimodal",
        }
    }

    /// Parses exactly `text` or `multimodal`; otherwise adds a violation and returns `None`.
    pub fn parse(given: &str, field: &str, violations: &mut Violations) -> Option<Self> {
        match given {
            "text" => Some(Self::Text),
            "multimodal" => Some(Self::Multimodal),
            other => {
                violations.push(
                    field,
                    format!(
                        "`{field}` is `{}`; it must be `text` or `multimodal`",
                        shorten(other)
                    ),
                );
                None
            }
        }
    }

    /// The type of an entry with this many images.
    #[must_use]
    pub const fn of(image_count: usize) -> Self {
        if image_count == 0 {
            Self::Text
        } else {
            Self::Multimodal
        }
    }
}

/// The start of a value for an error message, so that a long value does not fill the reply.
pub(crate) fn shorten(text: &str) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// A stored entry in full.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Entry {
    /// The entry's id: positive, never reused, below 2^53.
    #[schema(example = 42)]
    pub id: i64,
    /// The thread it belongs to.
    pub thread_id: String,
    /// Who wrote it.
    pub source: Source,
    /// Whether it has images.
    pub content_type: ContentType,
    /// The text, exactly as stored.
    pub text_content: String,
    /// A generated summary; "" if there is none.
    pub summary: String,
    /// Its metadata.
    #[schema(value_type = std::collections::BTreeMap<String, serde_json::Value>)]
    pub metadata: ObjectText,
    /// Its tags, sorted.
    pub tags: Vec<String>,
    /// When it was stored.
    pub created_at: Timestamp,
    /// When it was last updated; equal to `created_at` before the first update.
    pub updated_at: Timestamp,
    /// The version: starts at 1 and grows with each update; the `ETag` begins with it.
    pub version: i64,
    /// Its images in order; absent if `include_images` is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<ImageInput>>,
}
