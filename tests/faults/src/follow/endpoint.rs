//! The addresses of running services, and the revisions that followers must reach.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use context_test_support::http::{Reply, Request};
use context_test_support::{Deadline, Random, wait_for};

use super::Filter;

/// A running service.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint {
    /// The address of the service.
    pub address: SocketAddr,
    /// The state of its database: how many times the database was replaced.
    pub epoch: usize,
}

/// The running services, and the database state of every service that ever ran.
#[derive(Debug, Default)]
pub struct Endpoints(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    endpoints: BTreeMap<usize, Endpoint>,
    epochs: BTreeMap<SocketAddr, usize>,
}

impl Endpoints {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, node: usize, endpoint: Option<Endpoint>) {
        let mut state = self.lock();
        match endpoint {
            Some(endpoint) => {
                state.epochs.insert(endpoint.address, endpoint.epoch);
                state.endpoints.insert(node, endpoint);
            }
            None => _ = state.endpoints.remove(&node),
        }
    }

    /// The database of all running services is replaced.
    pub(super) fn replace(&self, epoch: usize) {
        let mut state = self.lock();
        let State { endpoints, epochs } = &mut *state;
        for endpoint in endpoints.values_mut() {
            endpoint.epoch = epoch;
            epochs.insert(endpoint.address, epoch);
        }
    }

    /// The last state of the database of a service that runs or ran at this address.
    pub(super) fn epoch_at(&self, address: SocketAddr) -> usize {
        self.lock().epochs.get(&address).copied().unwrap_or(0)
    }

    pub(super) fn all(&self) -> Vec<Endpoint> {
        self.lock().endpoints.values().copied().collect()
    }

    /// A random running service. Waits while there is none.
    pub(super) async fn any(&self, random: &mut Random) -> Endpoint {
        wait_for("a service runs", || {
            let endpoints = self.all();
            (!endpoints.is_empty()).then(|| *random.pick(&endpoints))
        })
        .await
    }
}

/// Adds the key, if there is one.
pub(super) fn with_key(request: Request, key: Option<&str>) -> Request {
    match key {
        Some(key) => request.key(key),
        None => request,
    }
}

/// Sends a request after a fault. Repeats it while the service responds 503 because it cannot reach its database yet.
pub(super) async fn send_until_available(request: impl Fn() -> Request) -> Reply {
    let deadline = Deadline::new();
    loop {
        let reply = request().send().await;
        if reply.status != 503 {
            return reply;
        }
        deadline.pause(|| reply.body).await;
    }
}

/// The last writes of a round. A follower is done when it has received the one that its filter selects.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub epoch: usize,
    pub artifact: Written,
    pub quiet: Written,
    pub last: Written,
}

/// The id of an entry or artifact that a request wrote, and the revision of that write.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub revision: i64,
    pub id: String,
}

impl Target {
    /// The last write that this filter selects.
    pub(super) fn of(&self, filter: Filter) -> &Written {
        match filter {
            Filter::Artifacts => &self.artifact,
            Filter::Thread("quiet") => &self.quiet,
            _ => &self.last,
        }
    }
}
