//! Conversions of API keys, in both directions.

use context_model::{
    ApiKey, ApiKeyRequest, CreateApiKeyReply, CreateApiKeyRequest, Error, ListApiKeysReply, Result,
    UpdateApiKeyRequest,
};

use crate::reply::{all, missing, timestamp_from_pb, timestamp_to_pb, try_all};
use crate::v1 as pb;

impl From<ApiKey> for pb::ApiKey {
    fn from(key: ApiKey) -> Self {
        let ApiKey {
            id,
            name,
            scopes,
            only,
            threads,
            created_at,
            expires_at,
            last_used_at,
            active,
        } = key;
        Self {
            id,
            name,
            scopes,
            only,
            threads: threads.unwrap_or_default(),
            created_at: Some(timestamp_to_pb(created_at)),
            expires_at: expires_at.map(timestamp_to_pb),
            last_used_at: last_used_at.map(timestamp_to_pb),
            active,
        }
    }
}

impl TryFrom<pb::ApiKey> for ApiKey {
    type Error = Error;

    fn try_from(key: pb::ApiKey) -> Result<Self> {
        let pb::ApiKey {
            id,
            name,
            scopes,
            only,
            threads,
            created_at,
            expires_at,
            last_used_at,
            active,
        } = key;
        let optional = |at: Option<prost_types::Timestamp>| {
            at.map(|at| timestamp_from_pb(Some(at))).transpose()
        };
        Ok(Self {
            id,
            name,
            scopes,
            only,
            threads: Some(threads).filter(|threads| !threads.is_empty()),
            created_at: timestamp_from_pb(created_at)?,
            expires_at: optional(expires_at)?,
            last_used_at: optional(last_used_at)?,
            active,
        })
    }
}

/// Implements replies that consist of one key.
macro_rules! one_key {
    ($($pb:ident)*) => {$(
        impl From<ApiKey> for pb::$pb {
            fn from(key: ApiKey) -> Self {
                Self { api_key: Some(key.into()) }
            }
        }

        impl TryFrom<pb::$pb> for ApiKey {
            type Error = Error;

            fn try_from(reply: pb::$pb) -> Result<Self> {
                let pb::$pb { api_key } = reply;
                api_key.ok_or_else(|| missing("api_key"))?.try_into()
            }
        }
    )*};
}

one_key!(GetApiKeyResponse UpdateApiKeyResponse DeactivateApiKeyResponse);

/// Implements requests that name one key.
macro_rules! key_request {
    ($($pb:ident)*) => {$(
        impl From<pb::$pb> for ApiKeyRequest {
            fn from(request: pb::$pb) -> Self {
                let pb::$pb { key_id } = request;
                Self { key_id }
            }
        }
    )*};
}

key_request!(GetApiKeyRequest DeactivateApiKeyRequest);

impl From<pb::CreateApiKeyRequest> for CreateApiKeyRequest {
    fn from(request: pb::CreateApiKeyRequest) -> Self {
        let pb::CreateApiKeyRequest {
            name,
            scopes,
            expires_at,
            only,
            threads,
        } = request;
        let threads = Some(threads).filter(|threads| !threads.is_empty());
        Self {
            name,
            scopes: scopes.map(|list| list.values),
            expires_at,
            only,
            threads,
        }
    }
}

impl From<CreateApiKeyReply> for pb::CreateApiKeyResponse {
    fn from(reply: CreateApiKeyReply) -> Self {
        let CreateApiKeyReply {
            key,
            api_key,
            notice,
        } = reply;
        Self {
            key,
            api_key: Some(api_key.into()),
            notice,
        }
    }
}

impl From<pb::UpdateApiKeyRequest> for UpdateApiKeyRequest {
    fn from(request: pb::UpdateApiKeyRequest) -> Self {
        let pb::UpdateApiKeyRequest {
            key_id,
            name,
            scopes,
            expires_at,
        } = request;
        Self {
            key_id,
            name,
            scopes: scopes.map(|list| list.values),
            expires_at,
        }
    }
}

impl From<ListApiKeysReply> for pb::ListApiKeysResponse {
    fn from(reply: ListApiKeysReply) -> Self {
        let ListApiKeysReply { result } = reply;
        Self {
            api_keys: all(result),
        }
    }
}

impl TryFrom<pb::ListApiKeysResponse> for ListApiKeysReply {
    type Error = Error;

    fn try_from(reply: pb::ListApiKeysResponse) -> Result<Self> {
        let pb::ListApiKeysResponse { api_keys } = reply;
        Ok(Self {
            result: try_all(api_keys)?,
        })
    }
}
