//! The caller of a request, and what it may do.

use std::sync::Arc;

use context_model::{
    Error, Filter, FilterInput, Only, Operation, Reason, Resource, Result, Scope, ThreadId,
    ThreadSet, Violations,
};
use context_store::{Memory, OwnerId};

/// The documented sentence for a request without a valid key. It does not reveal why a key is
/// invalid.
pub const AUTHENTICATION_REQUIRED: &str =
    "Authentication required. Please provide a valid API key.";

/// The error for a request without valid credentials.
pub(super) fn unauthenticated() -> Error {
    Error::new(Reason::Unauthenticated, AUTHENTICATION_REQUIRED)
}

/// The caller of a request, as the transport authenticated it. Every operation requires one.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The owner whose data the request reads and writes.
    pub owner: OwnerId,
    /// The credentials: the id of an API key, or the name of a token's holder; `None` if
    /// authentication is off.
    pub key_id: Option<String>,
    /// The scopes of the credentials.
    pub scopes: Vec<Scope>,
    /// The part of the owner's data that the caller may reach.
    pub reach: Reach,
    /// Whether the caller operates the service (authentication is off) and may see connection
    /// statistics.
    pub operator: bool,
    /// The account for the memory that this caller's request holds.
    pub memory: Memory,
    /// Whether the caller may administer keys if its scopes allow it. With authentication off no
    /// caller over TCP may: its key would be valid once authentication is on.
    pub administers_keys: bool,
}

/// The part of the owner's data that a caller may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reach {
    /// All of it.
    #[default]
    All,
    /// Context entries, threads and statistics.
    Contexts,
    /// The entries of some threads, and statistics about those entries.
    Threads(Arc<ThreadSet>),
    /// Artifacts.
    Artifacts,
}

impl Reach {
    /// The name in API requests; `None` for [`Reach::All`].
    #[must_use]
    pub const fn as_str(&self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::Contexts | Self::Threads(_) => Some(Only::Contexts.as_str()),
            Self::Artifacts => Some(Only::Artifacts.as_str()),
        }
    }

    /// The reach with this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Only::parse(name).map(|only| match only {
            Only::Contexts => Self::Contexts,
            Only::Artifacts => Self::Artifacts,
        })
    }
}

impl Caller {
    /// The only caller if authentication is off: owner `default`, every scope.
    #[must_use]
    pub fn local() -> Self {
        Self {
            owner: OwnerId::default(),
            key_id: None,
            scopes: Scope::ALL.to_vec(),
            reach: Reach::All,
            operator: true,
            memory: Memory::UNCOUNTED,
            administers_keys: true,
        }
    }

    /// Like [`local`](Self::local), over TCP. Every user of the machine can connect there, so this
    /// caller cannot administer keys.
    #[must_use]
    pub fn local_over_tcp() -> Self {
        Self {
            administers_keys: false,
            ..Self::local()
        }
    }

    /// Checks that the caller may run an operation. Access to threads is checked later, when the
    /// request is parsed.
    ///
    /// # Errors
    /// `SCOPE_MISSING` naming the missing scope or the key's restriction; `FEATURE_UNAVAILABLE`
    /// naming AUTH, for the administration of keys.
    pub fn require(&self, operation: Operation) -> Result<()> {
        if operation.scope() == Some(Scope::Manage) && !self.administers_keys {
            let sentence = "AUTH is off: API keys are then managed only over the Unix socket or by \
                            `context-service keys`; with AUTH=keys or AUTH=oidc they are also managed over TCP";
            return Err(Error::new(Reason::FeatureUnavailable, sentence));
        }
        if let Some(scope) = operation
            .scope()
            .filter(|scope| !self.scopes.contains(scope))
        {
            return Err(Error::scope_missing(scope));
        }
        let is_reached = match (operation.resource(), &self.reach) {
            (_, Reach::All)
            // Every caller sees the changes of what it reaches.
            | (Resource::Change, _)
            | (Resource::Context, Reach::Contexts | Reach::Threads(_))
            | (Resource::Artifact, Reach::Artifacts) => true,
            (Resource::Context, Reach::Artifacts)
            | (Resource::Artifact, Reach::Contexts | Reach::Threads(_)) => false,
            // A narrowed key that could create keys could create one that is not narrowed.
            (Resource::ApiKey, _) => operation.scope().is_none(),
        };
        match self.reach.as_str() {
            Some(only) if !is_reached => Err(Error::new(
                Reason::ScopeMissing,
                format!("the credentials are narrowed to {only} and do not reach this operation"),
            )),
            _ => Ok(()),
        }
    }

    /// The threads to which the caller is narrowed; `None` for all.
    #[must_use]
    pub fn within(&self) -> Option<&ThreadSet> {
        match &self.reach {
            Reach::Threads(threads) => Some(threads),
            Reach::All | Reach::Contexts | Reach::Artifacts => None,
        }
    }

    /// Checks that the caller is not narrowed to other threads.
    ///
    /// # Errors
    /// `SCOPE_MISSING` if the caller is narrowed to other threads.
    pub fn require_thread(&self, thread: &ThreadId) -> Result<()> {
        match self.within() {
            Some(threads) if !threads.contains(thread.as_str()) => Err(Error::new(
                Reason::ScopeMissing,
                "the credentials are narrowed to other threads and do not reach this one",
            )),
            _ => Ok(()),
        }
    }

    /// The filter of a search by this caller, including its thread restriction, and the number of filters in the
    /// request. Every operation that filters entries calls this.
    pub(crate) fn filter(
        &self,
        given: FilterInput,
        violations: &mut Violations,
    ) -> (Filter, usize) {
        let mut filter = Filter::parse(given, violations);
        let count = filter.count();
        filter.within = self.within().cloned();
        (filter, count)
    }
}
