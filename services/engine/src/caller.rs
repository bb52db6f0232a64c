use context_model::{Error, Reason, Result};
use context_store::OwnerId;

/// Who makes a request, as the transport has established it.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose entries the request is about.
    pub owner: OwnerId,
    /// The API key used, if any.
    pub key_id: Option<String>,
    /// What the caller may do.
    pub scopes: Vec<Scope>,
    /// Whether the caller operates the service (authentication is off), and may see how its connections are used.
    pub operator: bool,
}

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Fetch, search, list, count.
    Read,
    /// Store and update.
    Write,
    /// Delete.
    Delete,
}

impl Scope {
    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
        }
    }
}

impl Caller {
    /// The one caller there is when authentication is off: owner `default`, every scope.
    #[must_use]
    pub fn local() -> Self {
        Self { owner: OwnerId::default(), key_id: None, scopes: vec![Scope::Read, Scope::Write, Scope::Delete], operator: true }
    }

    /// Checks a scope.
    ///
    /// # Errors
    /// `SCOPE_MISSING` naming the scope.
    pub fn require(&self, scope: Scope) -> Result<()> {
        if self.scopes.contains(&scope) {
            return Ok(());
        }
        Err(Error::new(
            Reason::ScopeMissing,
            format!("this operation needs the scope `{}`, which the credentials do not carry", scope.as_str()),
        ))
    }
}

/// What comes with a write beside its request.
#[derive(Debug, Clone, Default)]
pub struct WriteContext {
    /// Makes a retry harmless: 1 to 255 visible ASCII characters (REST `Idempotency-Key`, gRPC metadata
    /// `idempotency-key`).
    pub idempotency_key: Option<String>,
}
