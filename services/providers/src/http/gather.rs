//! Combines the texts of several callers into one request. A caller that finds a free slot sends its request at once.
//! While all slots for concurrent requests are in use, texts wait; the next free slot then sends the waiting texts that
//! fit into one request.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::client::CONCURRENT;
use super::request::{Requests, is_about_texts, is_internal_failure};
use crate::{ProviderError, Role};

type Response = Result<Vec<Vec<f32>>, ProviderError>;

pub(super) struct Gather {
    requests: Requests,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The waiting texts, oldest first. Each caller has at most one item.
    waiting: VecDeque<Waiting>,
    /// Number of slots in use.
    busy: usize,
}

struct Waiting {
    texts: Vec<String>,
    role: Role,
    reply: oneshot::Sender<Response>,
}

impl Gather {
    pub fn new(requests: Requests) -> Self {
        Self {
            requests,
            state: Mutex::default(),
        }
    }

    pub const fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Embeds texts that fit into one request, alone or together with those of other callers.
    pub async fn embed(self: &Arc<Self>, texts: Vec<String>, role: Role) -> Response {
        let (reply, response) = oneshot::channel();
        let mut awaited = Awaited {
            gather: self,
            response,
        };
        let has_slot = {
            let mut state = self.lock();
            state.waiting.push_back(Waiting { texts, role, reply });
            let has_slot = state.busy < CONCURRENT;
            state.busy += usize::from(has_slot);
            has_slot
        };
        if has_slot {
            // The slot works in its own task, because it also serves later callers, after this caller has left.
            let slot = Slot {
                gather: Arc::clone(self),
                is_held: true,
            };
            tokio::spawn(slot.work());
        }
        (&mut awaited.response)
            .await
            .unwrap_or_else(|_| Err(ProviderError::unavailable("the request was abandoned")))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a group's request and replies to its callers. One caller's bad texts must not fail the others: a group
    /// that fails because of its texts is halved until the caller with the bad texts is alone. After an internal
    /// failure of the provider each caller's texts are sent alone, once.
    async fn send(&self, group: Group) {
        let mut groups = vec![group];
        while let Some(Group {
            texts,
            role,
            mut callers,
        }) = groups.pop()
        {
            let is_shared = callers.len() > 1;
            let request = async {
                if is_shared {
                    self.requests.embed(&texts, role).await
                } else {
                    self.requests.embed_halving(&texts, role).await
                }
            };
            let response = tokio::select! {
                response = request => response,
                () = all_abandoned(&mut callers) => continue,
            };
            match response {
                Ok(vectors) => {
                    let mut vectors = vectors.into_iter();
                    for caller in callers {
                        let _ = caller
                            .reply
                            .send(Ok(vectors.by_ref().take(caller.texts).collect()));
                    }
                }
                Err(error) if is_shared && is_about_texts(&error) => {
                    let (first, second) = Group {
                        texts,
                        role,
                        callers,
                    }
                    .halves();
                    groups.extend([second, first]);
                }
                Err(error) if is_shared && is_internal_failure(&error) => {
                    let group = Group {
                        texts,
                        role,
                        callers,
                    };
                    groups.extend(group.alone());
                }
                Err(error) => {
                    for caller in callers {
                        let _ = caller.reply.send(Err(error.clone()));
                    }
                }
            }
        }
    }
}

/// A caller's pending reply. Dropping it removes the caller's waiting texts.
struct Awaited<'g> {
    gather: &'g Gather,
    response: oneshot::Receiver<Response>,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.response.close();
        self.gather
            .lock()
            .waiting
            .retain(|waiting| !waiting.reply.is_closed());
    }
}

/// One slot for requests. Its holder sends requests until no texts wait.
struct Slot {
    gather: Arc<Gather>,
    is_held: bool,
}

impl Slot {
    async fn work(mut self) {
        while let Some(group) = self.next() {
            self.gather.send(group).await;
        }
    }

    /// The next group. If there is none, the slot is returned under the same lock: a caller that arrives afterwards
    /// must find either a free slot or a holder that still checks the queue.
    fn next(&mut self) -> Option<Group> {
        let mut state = self.gather.lock();
        let group = state.next_group(&self.gather.requests);
        if group.is_none() {
            state.busy -= 1;
            self.is_held = false;
        }
        group
    }
}

impl Drop for Slot {
    /// Returns the slot after a panic and when the runtime stops.
    fn drop(&mut self) {
        if self.is_held {
            self.gather.lock().busy -= 1;
        }
    }
}

impl State {
    /// The caller that has waited longest, and the callers whose texts fit into the same request.
    fn next_group(&mut self, requests: &Requests) -> Option<Group> {
        let role = self.waiting.front()?.role;
        let mut room = requests.room();
        let (group, later) = self
            .waiting
            .drain(..)
            .partition(|waiting| waiting.role == role && room.take(&waiting.texts));
        self.waiting = later;
        let mut texts = Vec::new();
        let mut callers = Vec::new();
        for Waiting {
            texts: of_caller,
            role: _,
            reply,
        } in Vec::from(group)
        {
            callers.push(Caller {
                texts: of_caller.len(),
                reply,
            });
            texts.extend(of_caller);
        }
        Some(Group {
            texts,
            role,
            callers,
        })
    }
}

/// The content of one request.
struct Group {
    /// The callers' texts, caller by caller.
    texts: Vec<String>,
    role: Role,
    callers: Vec<Caller>,
}

struct Caller {
    /// Number of this caller's texts in the group.
    texts: usize,
    reply: oneshot::Sender<Response>,
}

impl Group {
    /// A group for each caller, the last caller's first.
    fn alone(self) -> Vec<Self> {
        let Self {
            mut texts,
            role,
            callers,
        } = self;
        let apart = callers.into_iter().rev().map(|caller| Self {
            texts: texts.split_off(texts.len() - caller.texts),
            role,
            callers: vec![caller],
        });
        apart.collect()
    }

    fn halves(mut self) -> (Self, Self) {
        let callers = self.callers.split_off(self.callers.len() / 2);
        let texts = self
            .texts
            .split_off(self.callers.iter().map(|caller| caller.texts).sum());
        let role = self.role;
        (
            self,
            Self {
                texts,
                role,
                callers,
            },
        )
    }
}

/// Completes when no caller waits for a reply any more.
async fn all_abandoned(callers: &mut [Caller]) {
    for caller in callers {
        caller.reply.closed().await;
    }
}
