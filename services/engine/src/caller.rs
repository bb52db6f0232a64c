use std::sync::Arc;

use context_model::{Error, Filter, FilterInput, Reason, Result, Scope, ThreadId, ThreadSet, Violations};
use context_store::OwnerId;

/// Who makes a request, as the transport has established it. No operation can be called without one.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose entries the request is about.
    pub owner: OwnerId,
    /// Whose credentials were used: the id of an API key, or the name of a token's holder; `None` without any.
    pub key_id: Option<String>,
    /// What the caller may do.
    pub scopes: Vec<Scope>,
    /// What the caller may reach.
    pub reach: Reach,
    /// Whether the caller operates the service (authentication is off), and may see how its connections are used.
    pub operator: bool,
}

/// What a caller may reach of what its owner has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reach {
    /// All of it.
    #[default]
    All,
    /// Context entries, threads and statistics.
    Contexts,
    /// The entries of some threads, with what is counted of them.
    Threads(Arc<ThreadSet>),
    /// Artifacts.
    Artifacts,
}

impl Reach {
    /// The name on the wire; `None` for all.
    #[must_use]
    pub const fn as_str(&self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::Contexts | Self::Threads(_) => Some("contexts"),
            Self::Artifacts => Some("artifacts"),
        }
    }

    /// The reach with this wire name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Contexts, Self::Artifacts].into_iter().find(|reach| reach.as_str() == Some(name))
    }
}

impl Caller {
    /// The one caller there is when authentication is off: owner `default`, every scope.
    #[must_use]
    pub fn local() -> Self {
        Self { owner: OwnerId::default(), key_id: None, scopes: Scope::ALL.to_vec(), reach: Reach::All, operator: true }
    }

    /// Checks a scope, for an operation on context entries.
    ///
    /// # Errors
    /// `SCOPE_MISSING` naming the scope, or what the key is narrowed to.
    pub fn require(&self, scope: Scope) -> Result<()> {
        self.require_in(&Reach::Contexts, scope)
    }

    /// Checks a scope, for an operation on artifacts.
    ///
    /// # Errors
    /// `SCOPE_MISSING` naming the scope, or what the key is narrowed to.
    pub fn require_for_artifacts(&self, scope: Scope) -> Result<()> {
        self.require_in(&Reach::Artifacts, scope)
    }

    /// The threads that the caller is narrowed to; `None` for all.
    #[must_use]
    pub fn within(&self) -> Option<&ThreadSet> {
        match &self.reach {
            Reach::Threads(threads) => Some(threads),
            Reach::All | Reach::Contexts | Reach::Artifacts => None,
        }
    }

    /// Checks that the caller may change something in this thread.
    ///
    /// # Errors
    /// `SCOPE_MISSING` when it is narrowed to others.
    pub fn require_thread(&self, thread: &ThreadId) -> Result<()> {
        match self.within() {
            Some(threads) if !threads.contains(thread.as_str()) => {
                Err(Error::new(Reason::ScopeMissing, "the credentials are narrowed to other threads and do not reach this one"))
            }
            _ => Ok(()),
        }
    }

    /// What a search of the caller's must satisfy, and how many filters the caller gave. No operation takes filters by
    /// another way.
    pub(crate) fn filter(&self, given: FilterInput, violations: &mut Violations) -> (Filter, usize) {
        let filter = Filter::parse(given, violations);
        let count = filter.count();
        (Filter { within: self.within().cloned(), ..filter }, count)
    }

    fn require_in(&self, needed: &Reach, scope: Scope) -> Result<()> {
        if !self.scopes.contains(&scope) {
            let sentence = format!("this operation needs the scope `{}`, which the credentials do not carry", scope.as_str());
            return Err(Error::new(Reason::ScopeMissing, sentence));
        }
        match self.reach.as_str() {
            Some(only) if needed.as_str() != Some(only) => {
                Err(Error::new(Reason::ScopeMissing, format!("the credentials are narrowed to {only} and do not reach this operation")))
            }
            _ => Ok(()),
        }
    }

    /// Checks the scope `manage`. A narrowed key has it for nothing: it could make one that is not.
    ///
    /// # Errors
    /// `SCOPE_MISSING`.
    pub fn require_manage(&self) -> Result<()> {
        self.require_in(&Reach::All, Scope::Manage)
    }
}

/// What comes with a write beside its request.
#[derive(Debug, Clone, Default)]
pub struct WriteContext {
    /// Makes a retry harmless: 1 to 255 visible ASCII characters (REST `Idempotency-Key`, gRPC metadata
    /// `idempotency-key`).
    pub idempotency_key: Option<String>,
}
