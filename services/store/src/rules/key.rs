//! Changes of stored keys.

use crate::{KeyChange, StoredKey};

/// The key after a change. `None` when the change has no effect and nothing must be written.
#[must_use]
pub fn changed(key: &StoredKey, change: &KeyChange) -> Option<StoredKey> {
    let KeyChange {
        name,
        scopes,
        narrowing,
        expires_at,
        deactivated_at,
    } = change.clone();
    let after = StoredKey {
        name: name.unwrap_or_else(|| key.name.clone()),
        scopes: scopes.unwrap_or_else(|| key.scopes.clone()),
        narrowing: narrowing.unwrap_or_else(|| key.narrowing.clone()),
        expires_at: expires_at.unwrap_or(key.expires_at),
        // The first deactivation counts, and a key cannot be activated again.
        deactivated_at: key.deactivated_at.or(deactivated_at),
        ..key.clone()
    };
    (after != *key).then_some(after)
}

/// The deactivated form of a key that is replaced by another. `None` when it was already deactivated and cannot be
/// replaced.
#[must_use]
pub fn replaced(key: StoredKey, by: &StoredKey) -> Option<StoredKey> {
    if key.deactivated_at.is_some() {
        return None;
    }
    Some(StoredKey {
        deactivated_at: Some(by.created_at),
        ..key
    })
}
