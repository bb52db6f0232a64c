//! Converts a stored key to its caller and to the form that replies show.

use std::sync::Arc;

use context_model::{ApiKey, Scope, ThreadSet};
use context_store::{Memory, StoredKey};
use serde::{Deserialize, Serialize};

use super::caller::{Caller, Reach};

/// The stored form of a key's restriction.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Narrowing {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    only: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    threads: Option<Vec<String>>,
}

impl Narrowing {
    pub fn of(reach: &Reach) -> Self {
        let threads = match reach {
            Reach::Threads(threads) => Some(threads.shown()),
            Reach::All | Reach::Contexts | Reach::Artifacts => None,
        };
        Self {
            only: reach.as_str().map(str::to_owned),
            threads,
        }
    }

    /// The restriction. `None` if this version cannot parse it.
    pub fn reach(self) -> Option<Reach> {
        match (self.only.as_deref(), self.threads) {
            (None, None) => Some(Reach::All),
            (Some(only), None) => Reach::parse(only),
            (Some("contexts"), Some(threads)) => {
                ThreadSet::from_shown(&threads).map(|threads| Reach::Threads(Arc::new(threads)))
            }
            (_, Some(_)) => None,
        }
    }
}

/// The scopes of a stored key that this version knows.
pub(super) fn scopes_of(key: &StoredKey) -> Vec<Scope> {
    key.scopes
        .iter()
        .filter_map(|scope| Scope::parse(scope))
        .collect()
}

/// The caller of a stored key. With a restriction that this version cannot parse, it has no scopes.
pub(super) fn caller_of(key: &StoredKey) -> Caller {
    let reach = serde_json::from_str::<Narrowing>(&key.narrowing)
        .ok()
        .and_then(Narrowing::reach);
    let scopes = reach.as_ref().map(|_| scopes_of(key));
    Caller {
        owner: key.owner.clone(),
        key_id: Some(key.id.clone()),
        scopes: scopes.unwrap_or_default(),
        reach: reach.unwrap_or_default(),
        operator: false,
        memory: Memory::UNCOUNTED,
        administers_keys: true,
    }
}

/// The key in the form of replies.
pub(super) fn shown(key: StoredKey) -> ApiKey {
    let caller = caller_of(&key);
    let StoredKey {
        id,
        name,
        created_at,
        expires_at,
        last_used_at,
        deactivated_at,
        ..
    } = key;
    let scopes = caller
        .scopes
        .iter()
        .map(|scope| scope.as_str().to_owned())
        .collect();
    let Narrowing { only, threads } = Narrowing::of(&caller.reach);
    ApiKey {
        id,
        name,
        scopes,
        only,
        threads,
        created_at,
        expires_at,
        last_used_at,
        active: deactivated_at.is_none(),
    }
}
