//! Where services run, and how far followers must come.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use context_test_support::http::{Reply, Request};
use context_test_support::{Deadline, Random, wait_for};

use super::Filter;

/// A running service.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Its address.
    pub address: SocketAddr,
    /// The state of its database: how many times the database was replaced.
    pub epoch: usize,
}

/// The services that run, and the state of the database of each that ever ran.
#[derive(Debug, Default)]
pub struct Places(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    places: BTreeMap<usize, Place>,
    epochs: BTreeMap<SocketAddr, usize>,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, node: usize, place: Option<Place>) {
        let mut known = self.lock();
        match place {
            Some(place) => {
                known.epochs.insert(place.address, place.epoch);
                known.places.insert(node, place);
            }
            None => _ = known.places.remove(&node),
        }
    }

    /// The database of all running services is replaced.
    pub(super) fn replace(&self, epoch: usize) {
        let mut known = self.lock();
        let Known { places, epochs } = &mut *known;
        for place in places.values_mut() {
            place.epoch = epoch;
            epochs.insert(place.address, epoch);
        }
    }

    /// The last state of the database of a service that runs or ran at this address.
    pub(super) fn epoch_at(&self, address: SocketAddr) -> usize {
        self.lock().epochs.get(&address).copied().unwrap_or(0)
    }

    pub(super) fn all(&self) -> Vec<Place> {
        self.lock().places.values().copied().collect()
    }

    /// One of them. Waits while there is none.
    pub(super) async fn any(&self, random: &mut Random) -> Place {
        wait_for("a service runs", || {
            let places = self.all();
            (!places.is_empty()).then(|| *random.pick(&places))
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

/// The reply of a service that is there again after a fault: one that says that its database is away is asked again.
pub(super) async fn reply_of(request: impl Fn() -> Request) -> Reply {
    let deadline = Deadline::new();
    loop {
        let reply = request().send().await;
        if reply.status != 503 {
            return reply;
        }
        deadline.pause(|| reply.body).await;
    }
}

/// Where every follower must arrive: the last entries and the last artifact.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub epoch: usize,
    pub artifact: Made,
    pub quiet: Made,
    pub last: Made,
}

/// What a request made, and the revision with it.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub revision: i64,
    pub id: String,
}

impl Target {
    pub(super) fn of(&self, filter: Filter) -> &Made {
        match filter {
            Filter::Artifacts => &self.artifact,
            Filter::Thread("quiet") => &self.quiet,
            _ => &self.last,
        }
    }
}
