//! Requests and replies about API keys.

use serde::{Deserialize, Serialize};

use crate::{Only, OnlyOrLater, Scope, ScopeOrLater, Timestamp};

/// A key to create.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateApiKeyRequest {
    /// Its name: 1 to 100 characters.
    #[serde(default)]
    #[schema(required, min_length = 1, max_length = 100, example = "laptop")]
    pub name: String,
    /// Its scopes; default: read, write and delete. The caller's own key must have each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Scope>>, example = json!(["read"]))]
    pub scopes: Option<Vec<String>>,
    /// When it expires, as an ISO 8601 date or time; default: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Restricts the key to one resource; default: both.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Only>)]
    pub only: Option<String>,
    /// Restricts the key to the entries of these threads, without artifacts. 1 to 100 thread ids,
    /// or prefixes that end with `*`; default: all threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 100, example = json!(["billing", "team-a/*"]))]
    pub threads: Option<Vec<String>>,
}

/// A key without its secret, which is shown only once, when the key is created.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ApiKey {
    /// Its id, which is not secret.
    #[schema(format = "uuid")]
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its scopes.
    #[schema(value_type = Vec<ScopeOrLater>)]
    pub scopes: Vec<String>,
    /// The resource it is restricted to; null if it may use both.
    #[schema(required, value_type = Option<OnlyOrLater>)]
    pub only: Option<String>,
    /// The threads it is restricted to; null if it may use all threads.
    #[schema(required)]
    pub threads: Option<Vec<String>>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires; null if it never expires.
    #[schema(required)]
    pub expires_at: Option<Timestamp>,
    /// When it was last used, accurate to a minute; null if it was never used.
    #[schema(required)]
    pub last_used_at: Option<Timestamp>,
    /// False if it was deactivated. An expired key may still be active.
    pub active: bool,
}

/// The created key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct CreateApiKeyReply {
    /// The secret key. Only this reply shows it; it cannot be read again.
    #[schema(example = "sk_prod_…")]
    pub key: String,
    /// The key without its secret.
    pub api_key: ApiKey,
    /// Says that authentication is off, so no request needs the key; absent if authentication is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
}

/// The owner's keys.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
pub struct ListApiKeysReply {
    /// The keys: active ones first, each kind newest first, at most 1000.
    pub result: Vec<ApiKey>,
}

/// Which key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyRequest {
    /// The key's id.
    #[serde(default)]
    pub key_id: String,
}

/// Changes to a key; at least one is required.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpdateApiKeyRequest {
    /// The key's id.
    #[serde(default)]
    pub key_id: String,
    /// A new name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The new scopes. The caller's own key must have each of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
    /// The new expiry, as an ISO 8601 date or time; "" removes the expiry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// Changes to a key. At least one is required.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UpdateApiKeyBody {
    /// A new name.
    pub name: Option<String>,
    /// The new scopes. The caller's own key must have each of them.
    #[schema(value_type = Option<Vec<Scope>>)]
    pub scopes: Option<Vec<String>>,
    /// The new expiry, as an ISO 8601 date or time; "" removes the expiry.
    pub expires_at: Option<String>,
}

impl UpdateApiKeyBody {
    /// The request for the key with this id.
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
