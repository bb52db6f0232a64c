//! API keys on the wire: requests and replies.

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// A key to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateApiKeyRequest {
    /// What to call it: 1 to 100 characters.
    #[serde(default)]
    #[schema(required, min_length = 1, max_length = 100, example = "laptop")]
    pub name: String,
    /// Of `read`, `write`, `delete` and `manage`; absent: read, write and delete. None that the caller's own key lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["read"]))]
    pub scopes: Option<Vec<String>>,
    /// When it stops working, as an ISO 8601 date or time; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// `contexts` or `artifacts`: the key reaches nothing else; absent: both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// Threads: the key reaches the entries of no others, and no artifacts. Names, and beginnings of names with a `*` at their
    /// end; 1 to 100. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 100, example = json!(["billing", "team-a/*"]))]
    pub threads: Option<Vec<String>>,
}

/// A key as its owner sees it. The key itself is shown once, when it is made.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ApiKey {
    /// Its id, which is no secret.
    #[schema(format = "uuid")]
    pub id: String,
    /// What its owner calls it.
    pub name: String,
    /// What it allows.
    pub scopes: Vec<String>,
    /// What it is narrowed to: `contexts` or `artifacts`; null for both.
    pub only: Option<String>,
    /// The threads it is narrowed to; null for all.
    pub threads: Option<Vec<String>>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops working; null for never.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, within a minute; null for never.
    pub last_used_at: Option<Timestamp>,
    /// Whether it is not switched off. (It may still have expired.)
    pub active: bool,
}

/// The key that was made.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct CreateApiKeyReply {
    /// The key. It is shown this once and stored nowhere.
    #[schema(example = "sk_prod_…")]
    pub key: String,
    /// What is known about it from now on.
    pub api_key: ApiKey,
    /// Says that no request needs the key, while it is so; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
}

/// The owner's keys.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ListApiKeysReply {
    /// The keys, newest first.
    pub result: Vec<ApiKey>,
}

/// Which key is meant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyRequest {
    /// The key's id.
    #[serde(default)]
    pub key_id: String,
}

/// Changes to a key; at least one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateApiKeyRequest {
    /// The key's id.
    #[serde(default)]
    pub key_id: String,
    /// A new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Other scopes. None that the caller's own key lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
    /// Another expiry; "" for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// [`UpdateApiKeyRequest`] without the id, which REST has in the path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateApiKeyBody {
    /// A new name.
    pub name: Option<String>,
    /// Other scopes. None that the caller's own key lacks.
    pub scopes: Option<Vec<String>>,
    /// Another expiry; "" for none.
    pub expires_at: Option<String>,
}

impl UpdateApiKeyBody {
    /// The change of the key with this id.
    #[must_use]
    pub fn for_key(self, key_id: String) -> UpdateApiKeyRequest {
        let Self {
            name,
            scopes,
            expires_at,
        } = self;
        UpdateApiKeyRequest {
            key_id,
            name,
            scopes,
            expires_at,
        }
    }
}
