//! Who makes a request, and what that caller may do.

use std::sync::Arc;

use context_model::{
    Error, Filter, FilterInput, Operation, Reason, Resource, Result, Scope, ThreadId, ThreadSet,
    Violations,
};
use context_store::{Memory, OwnerId};

/// The documented sentence for a request without a valid key. It does not say what is wrong with one.
pub const AUTHENTICATION_REQUIRED: &str =
    "Authentication required. Please provide a valid API key.";

/// The error for a request without valid credentials.
pub(super) fn unauthenticated() -> Error {
    Error::new(Reason::Unauthenticated, AUTHENTICATION_REQUIRED)
}

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
    /// Where the bytes that a request of this caller holds are counted.
    pub memory: Memory,
    /// Whether the caller may administer keys when its scopes allow it. Without authentication no caller over TCP may: the
    /// key would work as soon as authentication is on.
    pub administers_keys: bool,
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
        [Self::Contexts, Self::Artifacts]
            .into_iter()
            .find(|reach| reach.as_str() == Some(name))
    }
}

impl Caller {
    /// The one caller there is when authentication is off: owner `default`, every scope.
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

    /// The same caller over TCP, where every user of the machine can connect.
    #[must_use]
    pub fn local_over_tcp() -> Self {
        Self {
            administers_keys: false,
            ..Self::local()
        }
    }

    /// Checks that the caller may run an operation. Which threads it reaches is checked where the request is known.
    ///
    /// # Errors
    /// `SCOPE_MISSING` naming the scope, or what the key is narrowed to; `FEATURE_UNAVAILABLE` naming AUTH, for keys.
    pub fn require(&self, operation: Operation) -> Result<()> {
        if operation.scope() == Some(Scope::Manage) && !self.administers_keys {
            let sentence = "AUTH is off, and then API keys are administered over the Unix socket or by `context-service keys` alone; \
                            over TCP they are with AUTH=keys or AUTH=oidc";
            return Err(Error::new(Reason::FeatureUnavailable, sentence));
        }
        if let Some(scope) = operation
            .scope()
            .filter(|scope| !self.scopes.contains(scope))
        {
            let sentence = format!(
                "this operation needs the scope `{}`, which the credentials do not carry",
                scope.as_str()
            );
            return Err(Error::new(Reason::ScopeMissing, sentence));
        }
        let is_reached = match (operation.resource(), &self.reach) {
            (_, Reach::All)
            | (Resource::Context, Reach::Contexts | Reach::Threads(_))
            | (Resource::Artifact, Reach::Artifacts) => true,
            (Resource::Context, Reach::Artifacts)
            | (Resource::Artifact, Reach::Contexts | Reach::Threads(_)) => false,
            // A narrowed key that could make keys could make one that is not narrowed.
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
            Some(threads) if !threads.contains(thread.as_str()) => Err(Error::new(
                Reason::ScopeMissing,
                "the credentials are narrowed to other threads and do not reach this one",
            )),
            _ => Ok(()),
        }
    }

    /// What a search of the caller's must satisfy, and how many filters the caller gave. No operation takes filters by
    /// another way.
    pub(crate) fn filter(
        &self,
        given: FilterInput,
        violations: &mut Violations,
    ) -> (Filter, usize) {
        let filter = Filter::parse(given, violations);
        let count = filter.count();
        (
            Filter {
                within: self.within().cloned(),
                ..filter
            },
            count,
        )
    }
}
