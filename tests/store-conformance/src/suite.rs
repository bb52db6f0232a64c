//! Registering and running behaviours.

use std::any::Any;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use context_store::Store;
use futures::future::LocalBoxFuture;
use libtest_mimic::{Arguments, Trial};

/// Maximum time for a behaviour. A loaded machine may need minutes for the longest ones, but a store that waits for
/// something that never comes must not stop the whole test run.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// An empty store, and the values that must live as long as the store.
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Changes the store's tables without the store.
    pub tamper: Box<dyn Tamper>,
    /// A temporary directory, a database to drop, …
    pub keep: Box<dyn Any + Send>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened")
            .field("store", &self.store.backend())
            .finish_non_exhaustive()
    }
}

/// Direct access to the database, without the store.
#[async_trait]
pub trait Tamper: Send + Sync {
    /// Runs this SQL statement on the service's tables. Both databases must understand it.
    async fn execute(&self, sql: &str);
}

/// A registered behaviour.
pub(crate) struct Behaviour {
    /// The module's path, beginning with this crate's name.
    pub(crate) module: &'static str,
    pub(crate) function: &'static str,
    pub(crate) run: for<'o> fn(&'o Opened) -> LocalBoxFuture<'o, ()>,
}

inventory::collect!(Behaviour);

impl Behaviour {
    fn name(&self) -> String {
        let module = self
            .module
            .split_once("::")
            .map_or("", |(_, module)| module);
        format!("{module}::{}", self.function)
    }
}

/// Registers a function of a store, or of a store and a [`Tamper`], as a behaviour.
macro_rules! behaviour {
    ($function:ident($($part:ident),+)) => {
        inventory::submit! {
            $crate::suite::Behaviour {
                module: module_path!(),
                function: stringify!($function),
                run: |opened| Box::pin($function($(&*opened.$part),+)),
            }
        }
    };
}
pub(crate) use behaviour;

/// The names of all behaviours, in order.
#[must_use]
pub fn behaviours() -> Vec<String> {
    let mut names: Vec<String> = inventory::iter::<Behaviour>
        .into_iter()
        .map(Behaviour::name)
        .collect();
    names.sort_unstable();
    names
}

/// Runs each behaviour as a separate test, on stores from this function: the `main` of a database's conformance tests.
///
/// # Panics
/// When no runtime can be created.
pub fn run<F>(open: fn() -> F) -> ExitCode
where
    F: Future<Output = Option<Opened>> + 'static,
{
    let test = |behaviour: &'static Behaviour| {
        Trial::test(behaviour.name(), move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime")
                .block_on(show(behaviour, open()));
            Ok(())
        })
    };
    let mut tests: Vec<Trial> = inventory::iter::<Behaviour>.into_iter().map(test).collect();
    tests.sort_by(|one, other| one.name().cmp(other.name()));
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

/// Runs all behaviours one after the other, each on its own store. For tests of what a database does during them.
pub async fn run_all<F>(open: fn() -> F)
where
    F: Future<Output = Option<Opened>>,
{
    for behaviour in inventory::iter::<Behaviour> {
        show(behaviour, open()).await;
    }
}

async fn show(behaviour: &Behaviour, open: impl Future<Output = Option<Opened>>) {
    if let Some(opened) = open.await {
        let shown = tokio::time::timeout(LIMIT, (behaviour.run)(&opened)).await;
        assert!(shown.is_ok(), "{}: not within {LIMIT:?}", behaviour.name());
        opened.store.close().await;
    }
}
