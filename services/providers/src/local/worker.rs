//! The thread that runs a model.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use context_bert::{Encoded, Model, ModelError, TextAndTokens};
use tokio::sync::oneshot;

use crate::{ProviderError, TokenCodes};

/// Maximum number of tokens computed together, except for a single longer text. This is also the longest wait of a
/// query: about a tenth of a second on one core. Larger batches are hardly faster.
const BATCH_TOKENS: usize = 512;
/// Maximum number of queued texts. Further ones are rejected, and entries that are being stored get a pending
/// embedding.
const QUEUED_TEXTS: usize = 4096;
/// Maximum number of threads for a matrix product.
const THREADS: usize = 4;

/// What the model computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// A vector for each text.
    Embed,
    /// A vector for each text, and the codes of its token vectors.
    EmbedWithTokens,
    /// A vector for each text, followed by a vector for each of its tokens.
    EmbedAndTokens,
    /// A vector for each token.
    Tokens,
    /// A score for each pair.
    Score,
}

/// The priority of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// A search waits for it.
    Query,
    /// A write waits for it.
    Document,
}

/// The output of the model for one text.
#[derive(Debug, Clone)]
pub(super) struct Output {
    /// The requested values: one vector, the token vectors, both, or a score.
    pub values: Vec<f32>,
    /// The codes of the token vectors, if they were requested.
    pub tokens: Option<TokenCodes>,
}

struct Job {
    task: Task,
    texts: Vec<Encoded>,
    /// Outputs of the texts computed so far, in order.
    outputs: Vec<Output>,
    reply: oneshot::Sender<Result<Vec<Output>, ProviderError>>,
}

#[derive(Default)]
struct State {
    queries: VecDeque<Job>,
    documents: VecDeque<Job>,
    /// Number of texts in both queues.
    waiting: usize,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    ready: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A model on its own thread. The thread ends when the worker is dropped.
pub(super) struct Worker {
    shared: Arc<Shared>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.ready.notify_all();
    }
}

impl Worker {
    pub fn start(model: Model) -> std::io::Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(THREADS));
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|_| "model".to_owned())
            .build()
            .map_err(std::io::Error::other)?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            ready: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("model-queue".to_owned())
            .spawn(move || work(&of_thread, &model, &pool))?;
        Ok(Self { shared })
    }

    /// Computes an output for each text.
    pub async fn run(
        &self,
        task: Task,
        urgency: Urgency,
        texts: Vec<Encoded>,
    ) -> Result<Vec<Output>, ProviderError> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, answer) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            if state.waiting > 0 && state.waiting + texts.len() > QUEUED_TEXTS {
                return Err(ProviderError::unavailable(
                    "too many texts are waiting for the model",
                ));
            }
            state.waiting += texts.len();
            let queue = match urgency {
                Urgency::Query => &mut state.queries,
                Urgency::Document => &mut state.documents,
            };
            queue.push_back(Job {
                task,
                outputs: Vec::with_capacity(texts.len()),
                texts,
                reply,
            });
        }
        self.shared.ready.notify_one();
        answer
            .await
            .unwrap_or_else(|_| Err(ProviderError::unavailable("the model stopped")))
    }
}

fn work(shared: &Shared, model: &Model, pool: &rayon::ThreadPool) {
    loop {
        let (urgency, task, texts) = {
            let mut state = shared.lock();
            loop {
                abandon(&mut state);
                if let Some(batch) = next_batch(&state) {
                    break batch;
                }
                if state.closed {
                    return;
                }
                state = shared
                    .ready
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
        };
        // A panic in the computation fails these texts, not the service.
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
            pool.install(|| compute(model, task, &texts))
        }));
        let outcome = match outcome {
            Ok(Ok(outputs)) => Ok(outputs),
            Ok(Err(error)) => Err(ProviderError::Malformed(error.to_string())),
            Err(_) => Err(ProviderError::Malformed("the model failed".to_owned())),
        };
        finish(shared, urgency, texts.len(), outcome);
    }
}

fn compute(model: &Model, task: Task, texts: &[Encoded]) -> Result<Vec<Output>, ModelError> {
    let alone = |values| Output {
        values,
        tokens: None,
    };
    match task {
        Task::Embed => Ok(model.embed(texts)?.into_iter().map(alone).collect()),
        Task::EmbedWithTokens => {
            let both = model.embed_with_tokens(texts)?.into_iter();
            let codes = |tokens: &[f32]| Some(TokenCodes::encode(tokens, model.dimensions()));
            Ok(both
                .map(|TextAndTokens { text, tokens }| Output {
                    values: text,
                    tokens: codes(&tokens),
                })
                .collect())
        }
        Task::EmbedAndTokens => {
            let both = model.embed_with_tokens(texts)?.into_iter();
            Ok(both
                .map(|TextAndTokens { text, tokens }| alone([text, tokens].concat()))
                .collect())
        }
        Task::Tokens => Ok(model.embed_tokens(texts)?.into_iter().map(alone).collect()),
        Task::Score => Ok(model
            .score(texts)?
            .into_iter()
            .map(|score| alone(vec![score]))
            .collect()),
    }
}

/// Removes abandoned jobs from the front of the queues. Only the worker thread removes jobs, and only from the front.
fn abandon(state: &mut State) {
    let State {
        queries,
        documents,
        waiting,
        closed: _,
    } = state;
    for queue in [queries, documents] {
        while let Some(job) = queue.front().filter(|job| job.reply.is_closed()) {
            *waiting -= job.texts.len();
            queue.pop_front();
        }
    }
}

/// The next texts to compute together, from one job or from several consecutive jobs with the same task.
fn next_batch(state: &State) -> Option<(Urgency, Task, Vec<Encoded>)> {
    let (urgency, queue) = if state.queries.is_empty() {
        (Urgency::Document, &state.documents)
    } else {
        (Urgency::Query, &state.queries)
    };
    let task = queue.front()?.task;
    let mut texts = Vec::new();
    let mut tokens = 0;
    for job in queue.iter().take_while(|job| job.task == task) {
        for text in &job.texts[job.outputs.len()..] {
            if !texts.is_empty() && tokens + text.ids.len() > BATCH_TOKENS {
                return Some((urgency, task, texts));
            }
            tokens += text.ids.len();
            texts.push(text.clone());
        }
    }
    Some((urgency, task, texts))
}

/// Assigns the outputs to the jobs at the front of the queue, in the order in which [`next_batch`] took their texts.
fn finish(
    shared: &Shared,
    urgency: Urgency,
    mut computed: usize,
    outcome: Result<Vec<Output>, ProviderError>,
) {
    let mut answers = Vec::new();
    {
        let mut state = shared.lock();
        let State {
            queries,
            documents,
            waiting,
            closed: _,
        } = &mut *state;
        let queue = match urgency {
            Urgency::Query => queries,
            Urgency::Document => documents,
        };
        let mut outputs = outcome
            .as_ref()
            .map(|outputs| outputs.clone().into_iter())
            .map_err(Clone::clone);
        while computed > 0 {
            let Some(job) = queue.front_mut() else { break };
            let own = (job.texts.len() - job.outputs.len()).min(computed);
            computed -= own;
            let failed = match &mut outputs {
                Ok(outputs) => {
                    job.outputs.extend(outputs.by_ref().take(own));
                    None
                }
                Err(error) => Some(error.clone()),
            };
            if failed.is_none() && job.outputs.len() < job.texts.len() {
                break;
            }
            *waiting -= job.texts.len();
            if let Some(Job { outputs, reply, .. }) = queue.pop_front() {
                answers.push((reply, failed.map_or(Ok(outputs), Err)));
            }
        }
    }
    for (reply, answer) in answers {
        let _ = reply.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answer = oneshot::Receiver<Result<Vec<Output>, ProviderError>>;

    /// A job of texts with these numbers of tokens. The token ids of a text are its length.
    fn job(lengths: &[usize]) -> (Job, Answer) {
        let (reply, answer) = oneshot::channel();
        let text = |length: &usize| Encoded {
            ids: vec![u32::try_from(*length).unwrap(); *length],
            types: vec![0; *length],
        };
        (
            Job {
                task: Task::Embed,
                texts: lengths.iter().map(text).collect(),
                outputs: Vec::new(),
                reply,
            },
            answer,
        )
    }

    fn lengths(state: &State) -> (Urgency, Vec<usize>) {
        let (urgency, _, texts) = next_batch(state).unwrap();
        (urgency, texts.iter().map(|text| text.ids.len()).collect())
    }

    fn with(documents: &[&[usize]]) -> (Shared, Vec<Answer>) {
        let (jobs, answers): (VecDeque<Job>, Vec<Answer>) =
            documents.iter().map(|lengths| job(lengths)).unzip();
        let waiting = jobs.iter().map(|job| job.texts.len()).sum();
        let state = State {
            documents: jobs,
            waiting,
            ..State::default()
        };
        (
            Shared {
                state: Mutex::new(state),
                ready: Condvar::new(),
            },
            answers,
        )
    }

    #[test]
    fn what_several_callers_wait_for_is_computed_together_up_to_a_batch() {
        let (shared, _answers) = with(&[&[100, 100], &[100], &[200, 300], &[10]]);
        assert_eq!(
            lengths(&shared.lock()),
            (Urgency::Document, vec![100, 100, 100, 200])
        );
        let (shared, _answers) = with(&[&[BATCH_TOKENS * 2], &[10]]);
        assert_eq!(
            lengths(&shared.lock()).1,
            [BATCH_TOKENS * 2],
            "a long text goes alone"
        );
    }

    #[test]
    fn a_query_is_not_computed_after_the_documents_that_came_before_it() {
        let (shared, _answers) = with(&[&[10], &[10]]);
        let (query, _answer) = job(&[7]);
        shared.lock().queries.push_back(query);
        assert_eq!(lengths(&shared.lock()), (Urgency::Query, vec![7]));
    }

    #[test]
    fn each_caller_gets_its_own_outputs_and_who_left_is_forgotten() {
        let (shared, mut answers) = with(&[&[1, 2], &[3], &[4]]);
        let output = |n: f32| Output {
            values: vec![n],
            tokens: None,
        };
        let values = |answer: &mut Answer| -> Vec<f32> {
            answer
                .try_recv()
                .unwrap()
                .unwrap()
                .into_iter()
                .flat_map(|output| output.values)
                .collect()
        };
        finish(
            &shared,
            Urgency::Document,
            3,
            Ok(vec![output(1.0), output(2.0), output(3.0)]),
        );
        assert_eq!(values(&mut answers[0]), [1.0, 2.0]);
        assert_eq!(values(&mut answers[1]), [3.0]);
        assert!(answers[2].try_recv().is_err(), "not computed yet");
        drop(answers);
        let mut state = shared.lock();
        abandon(&mut state);
        assert_eq!((state.waiting, next_batch(&state).is_none()), (0, true));
    }
}
