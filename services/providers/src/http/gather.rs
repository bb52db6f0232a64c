//! Sharing requests among callers. While a provider has as many requests as it may, texts wait, and those that may go
//! together go in one request as soon as there is a place. A caller that finds a place waits for nobody.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::client::CONCURRENT;
use super::request::{Requests, is_about_texts};
use crate::{ProviderError, Role};

type Answer = Result<Vec<Vec<f32>>, ProviderError>;

pub(super) struct Gather {
    requests: Requests,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Oldest first: one for each caller, so that there are no more than callers.
    waiting: VecDeque<Waiting>,
    /// Places that are taken.
    busy: usize,
}

struct Waiting {
    texts: Vec<String>,
    role: Role,
    reply: oneshot::Sender<Answer>,
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

    /// Embeds texts that fit into one request, alone or with those of others.
    pub async fn embed(self: &Arc<Self>, texts: Vec<String>, role: Role) -> Answer {
        let (reply, answer) = oneshot::channel();
        let mut awaited = Awaited {
            gather: self,
            answer,
        };
        let has_place = {
            let mut state = self.lock();
            state.waiting.push_back(Waiting { texts, role, reply });
            let has_place = state.busy < CONCURRENT;
            state.busy += usize::from(has_place);
            has_place
        };
        if has_place {
            // A task of its own, because it goes on for those who came later when this caller has gone.
            let place = Place {
                gather: Arc::clone(self),
                is_held: true,
            };
            tokio::spawn(place.work());
        }
        (&mut awaited.answer)
            .await
            .unwrap_or_else(|_| Err(ProviderError::unavailable("the request was given up")))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a group and answers its callers. What is wrong with the texts of one must not fail the others: a group that
    /// fails for its texts is asked for in halves, until whoever they belong to is alone.
    async fn ask(&self, group: Group) {
        let mut groups = vec![group];
        while let Some(Group {
            texts,
            role,
            mut callers,
        }) = groups.pop()
        {
            let is_shared = callers.len() > 1;
            let asking = async {
                if is_shared {
                    self.requests.embed(&texts, role).await
                } else {
                    self.requests.embed_halving(&texts, role).await
                }
            };
            let answer = tokio::select! {
                answer = asking => answer,
                () = all_gone(&mut callers) => continue,
            };
            match answer {
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
                Err(error) => {
                    for caller in callers {
                        let _ = caller.reply.send(Err(error.clone()));
                    }
                }
            }
        }
    }
}

/// What a caller waits for. One that goes away takes its texts along.
struct Awaited<'g> {
    gather: &'g Gather,
    answer: oneshot::Receiver<Answer>,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.answer.close();
        self.gather
            .lock()
            .waiting
            .retain(|waiting| !waiting.reply.is_closed());
    }
}

/// One of the places for requests. Whoever holds it asks for what waits until nothing does.
struct Place {
    gather: Arc<Gather>,
    is_held: bool,
}

impl Place {
    async fn work(mut self) {
        while let Some(group) = self.next() {
            self.gather.ask(group).await;
        }
    }

    /// The next group. Without one the place is given back in the same breath: whoever comes a moment later must find either
    /// the place free or somebody who still looks.
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

impl Drop for Place {
    /// After a panic, and when the runtime stops.
    fn drop(&mut self) {
        if self.is_held {
            self.gather.lock().busy -= 1;
        }
    }
}

impl State {
    /// Whoever waits longest, and who may go along.
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

/// What goes into one request.
struct Group {
    /// Those of the callers, one caller's after the other's.
    texts: Vec<String>,
    role: Role,
    callers: Vec<Caller>,
}

struct Caller {
    /// How many texts are its own.
    texts: usize,
    reply: oneshot::Sender<Answer>,
}

impl Group {
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

/// Ends when nobody waits for an answer any more.
async fn all_gone(callers: &mut [Caller]) {
    for caller in callers {
        caller.reply.closed().await;
    }
}
