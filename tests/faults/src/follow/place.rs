//! Where services run, and how far followers must come.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use context_test_support::http::Request;
use context_test_support::{Random, wait_for};

use super::Filter;

/// A running service.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Its address.
    pub address: SocketAddr,
    /// The state of its database: how many times an older copy replaced it.
    pub epoch: usize,
}

/// The services that run.
#[derive(Debug, Default)]
pub struct Places(Mutex<BTreeMap<usize, Place>>);

impl Places {
    pub(super) fn set(&self, node: usize, place: Option<Place>) {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match place {
            Some(place) => _ = places.insert(node, place),
            None => _ = places.remove(&node),
        }
    }

    /// One of them. Waits while there is none.
    pub(super) async fn any(&self, random: &mut Random) -> Place {
        wait_for("a service runs", || {
            let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let places: Vec<Place> = places.values().copied().collect();
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

/// Where every follower must arrive: the revisions of the last entries and of the last artifact.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    pub epoch: usize,
    pub artifact: i64,
    pub quiet: i64,
    pub last: i64,
}

impl Target {
    pub(super) fn revision(&self, filter: Filter) -> i64 {
        match filter {
            Filter::Artifacts => self.artifact,
            Filter::Thread("quiet") => self.quiet,
            _ => self.last,
        }
    }
}
