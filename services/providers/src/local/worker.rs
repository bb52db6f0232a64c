//! The thread that runs a model.

#![expect(
    clippy::disallowed_methods,
    reason = "how long background work waits for searches"
)]

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use context_bert::{Encoded, Model, ModelError, TextAndTokens};
use tokio::sync::oneshot;

use crate::{ProviderError, TokenCodes};

/// Maximum number of tokens computed together, unless a single text is longer. Larger batches are hardly faster. More
/// urgent texts do not wait for a batch: they are computed between two of its layers.
const BATCH_TOKENS: usize = 512;
/// Maximum number of queued texts of one urgency, unless they are of a single call. A call that would exceed it is
/// rejected. An entry that is being stored then gets a pending embedding, or is refused (EMBEDDING_ON_FAILURE=fail).
const QUEUED_TEXTS: usize = 4096;
/// Maximum number of threads for a matrix product.
const THREADS: usize = 4;
/// How long background work waits after a query, because a search that has its query vector still needs the processor.
const AFTER_QUERY: Duration = Duration::from_millis(20);
/// Maximum time for which a batch of background work waits for searches, so that it also proceeds while searches never
/// stop.
const MAX_BACKGROUND_WAIT: Duration = Duration::from_millis(200);

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

/// The priority of a request, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// A search waits for it.
    Query,
    /// A write waits for it.
    Document,
    /// No caller waits for it.
    Background,
}

impl Urgency {
    const ALL: [Self; 3] = [Self::Query, Self::Document, Self::Background];

    /// Maximum number of tokens computed together. A batch of background work is small (one text if texts are long): it
    /// lets more urgent texts go first between two layers, but competes with the rest of a search for the processor.
    const fn batch_tokens(self) -> usize {
        match self {
            Self::Query | Self::Document => BATCH_TOKENS,
            Self::Background => BATCH_TOKENS / 4,
        }
    }
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

/// The jobs of one urgency, oldest first.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Number of their texts.
    texts: usize,
}

#[derive(Default)]
struct State {
    /// The queue of each urgency.
    queues: [Queue; Urgency::ALL.len()],
    /// When the last query was computed.
    last_query: Option<Instant>,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    ready: Condvar,
}

/// Texts to compute together.
struct Batch {
    urgency: Urgency,
    task: Task,
    texts: Vec<Encoded>,
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
        let (reply, response) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            let queue = &mut state.queues[urgency as usize];
            if queue.texts > 0 && queue.texts + texts.len() > QUEUED_TEXTS {
                return Err(ProviderError::unavailable(
                    "too many texts are waiting for the model",
                ));
            }
            queue.texts += texts.len();
            queue.jobs.push_back(Job {
                task,
                outputs: Vec::with_capacity(texts.len()),
                texts,
                reply,
            });
        }
        self.shared.ready.notify_one();
        response
            .await
            .unwrap_or_else(|_| Err(ProviderError::unavailable("the model stopped")))
    }
}

fn work(shared: &Shared, model: &Model, pool: &rayon::ThreadPool) {
    loop {
        let batch = {
            let mut state = shared.lock();
            loop {
                state.remove_abandoned(&Urgency::ALL);
                if let Some(batch) = state.next_batch(&Urgency::ALL) {
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
        pool.install(|| {
            run(shared, batch, &|task, texts, between_layers| {
                compute(model, task, texts, between_layers)
            });
        });
    }
}

/// Computes a batch. The last argument is called before each layer.
type Compute<'c> =
    &'c (dyn Fn(Task, &[Encoded], &dyn Fn()) -> Result<Vec<Output>, ModelError> + Sync);

/// Computes a batch. Between its layers, computes all batches that are more urgent.
fn run(shared: &Shared, batch: Batch, compute: Compute<'_>) {
    let Batch {
        urgency,
        task,
        texts,
    } = batch;
    let more_urgent = &Urgency::ALL[..urgency as usize];
    let wait_until = (urgency == Urgency::Background).then(|| Instant::now() + MAX_BACKGROUND_WAIT);
    let between_layers = || {
        while let Some(batch) = next_more_urgent(shared, more_urgent, wait_until) {
            run(shared, batch, compute);
        }
    };
    // A panic in the computation fails these texts, not the service.
    let outcome =
        std::panic::catch_unwind(AssertUnwindSafe(|| compute(task, &texts, &between_layers)));
    let outcome = match outcome {
        Ok(Ok(outputs)) => Ok(outputs),
        Ok(Err(error)) => Err(ProviderError::Malformed(error.to_string())),
        Err(_) => Err(ProviderError::Malformed("the model failed".to_owned())),
    };
    if urgency == Urgency::Query {
        shared.lock().last_query = Some(Instant::now());
    }
    finish(shared, urgency, texts.len(), outcome);
}

/// The next batch of these urgencies. With `wait_until`, waits at most until then for a search to finish whose query
/// was just computed.
fn next_more_urgent(
    shared: &Shared,
    urgencies: &[Urgency],
    wait_until: Option<Instant>,
) -> Option<Batch> {
    let mut state = shared.lock();
    loop {
        // Only these queues, because the first jobs of the other queues are being computed.
        state.remove_abandoned(urgencies);
        let batch = state.next_batch(urgencies);
        if batch.is_some() || state.closed {
            return batch;
        }
        let resume = state.last_query? + AFTER_QUERY;
        let left = resume
            .min(wait_until?)
            .saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        state = shared
            .ready
            .wait_timeout(state, left)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
}

fn compute(
    model: &Model,
    task: Task,
    texts: &[Encoded],
    between_layers: &dyn Fn(),
) -> Result<Vec<Output>, ModelError> {
    let alone = |values| Output {
        values,
        tokens: None,
    };
    match task {
        Task::Embed => Ok(model
            .embed_between(texts, between_layers)?
            .into_iter()
            .map(alone)
            .collect()),
        Task::EmbedWithTokens => {
            let both = model
                .embed_with_tokens_between(texts, between_layers)?
                .into_iter();
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

impl State {
    /// Removes abandoned jobs from the front of these queues. Only the worker thread removes jobs, and only from the
    /// front.
    fn remove_abandoned(&mut self, urgencies: &[Urgency]) {
        for urgency in urgencies {
            let Queue { jobs, texts } = &mut self.queues[*urgency as usize];
            while let Some(job) = jobs.front().filter(|job| job.reply.is_closed()) {
                *texts -= job.texts.len();
                jobs.pop_front();
            }
        }
    }

    /// The next texts to compute together, from one job or from several consecutive jobs with the same task. Takes them
    /// from the first of these urgencies that has jobs.
    fn next_batch(&self, urgencies: &[Urgency]) -> Option<Batch> {
        let (urgency, jobs) = urgencies
            .iter()
            .map(|urgency| (*urgency, &self.queues[*urgency as usize].jobs))
            .find(|(_, jobs)| !jobs.is_empty())?;
        let task = jobs.front()?.task;
        let mut batch = Batch {
            urgency,
            task,
            texts: Vec::new(),
        };
        let mut tokens = 0;
        for job in jobs.iter().take_while(|job| job.task == task) {
            for text in &job.texts[job.outputs.len()..] {
                tokens += text.ids.len();
                if !batch.texts.is_empty() && tokens > urgency.batch_tokens() {
                    return Some(batch);
                }
                batch.texts.push(text.clone());
            }
        }
        Some(batch)
    }
}

/// Assigns the outputs to the jobs at the front of the queue, in the order in which [`State::next_batch`] took their
/// texts.
fn finish(
    shared: &Shared,
    urgency: Urgency,
    mut computed: usize,
    outcome: Result<Vec<Output>, ProviderError>,
) {
    let mut responses = Vec::new();
    {
        let mut state = shared.lock();
        let Queue { jobs, texts } = &mut state.queues[urgency as usize];
        let mut outputs = outcome
            .as_ref()
            .map(|outputs| outputs.clone().into_iter())
            .map_err(Clone::clone);
        while computed > 0 {
            let Some(job) = jobs.front_mut() else { break };
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
            *texts -= job.texts.len();
            if let Some(Job { outputs, reply, .. }) = jobs.pop_front() {
                responses.push((reply, failed.map_or(Ok(outputs), Err)));
            }
        }
    }
    for (reply, response) in responses {
        let _ = reply.send(response);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Response = oneshot::Receiver<Result<Vec<Output>, ProviderError>>;

    /// A job of texts with these numbers of tokens. Every token id of a text is the text's length.
    fn job(lengths: &[usize]) -> (Job, Response) {
        let (reply, response) = oneshot::channel();
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
            response,
        )
    }

    fn lengths(state: &State) -> (Urgency, Vec<usize>) {
        let batch = state.next_batch(&Urgency::ALL).unwrap();
        let texts = batch.texts.iter().map(|text| text.ids.len());
        (batch.urgency, texts.collect())
    }

    fn push(shared: &Shared, urgency: Urgency, lengths: &[usize]) -> Response {
        let (job, response) = job(lengths);
        let mut state = shared.lock();
        let queue = &mut state.queues[urgency as usize];
        queue.texts += job.texts.len();
        queue.jobs.push_back(job);
        response
    }

    fn with(documents: &[&[usize]]) -> (Shared, Vec<Response>) {
        let shared = Shared {
            state: Mutex::default(),
            ready: Condvar::new(),
        };
        let responses = documents
            .iter()
            .map(|lengths| push(&shared, Urgency::Document, lengths))
            .collect();
        (shared, responses)
    }

    fn output(n: f32) -> Output {
        Output {
            values: vec![n],
            tokens: None,
        }
    }

    /// The values that a caller got.
    fn values(response: &mut Response) -> Vec<f32> {
        response
            .try_recv()
            .unwrap()
            .unwrap()
            .into_iter()
            .flat_map(|output| output.values)
            .collect()
    }

    #[test]
    fn what_several_callers_wait_for_is_computed_together_up_to_a_batch() {
        let (shared, _responses) = with(&[&[100, 100], &[100], &[200, 300], &[10]]);
        assert_eq!(
            lengths(&shared.lock()),
            (Urgency::Document, vec![100, 100, 100, 200])
        );
        let (shared, _responses) = with(&[&[BATCH_TOKENS * 2], &[10]]);
        assert_eq!(
            lengths(&shared.lock()).1,
            [BATCH_TOKENS * 2],
            "a long text goes alone"
        );
    }

    #[test]
    fn queries_come_before_documents_and_background_work_is_last_and_in_small_pieces() {
        let (shared, _responses) = with(&[]);
        let _late = push(&shared, Urgency::Background, &[100, 20, 20, 200]);
        assert_eq!(
            lengths(&shared.lock()),
            (Urgency::Background, vec![100, 20])
        );
        let _document = push(&shared, Urgency::Document, &[10]);
        assert_eq!(lengths(&shared.lock()), (Urgency::Document, vec![10]));
        let _query = push(&shared, Urgency::Query, &[7]);
        assert_eq!(lengths(&shared.lock()), (Urgency::Query, vec![7]));
    }

    #[test]
    fn more_urgent_texts_are_computed_between_the_layers_of_a_batch() {
        let (shared, _responses) = with(&[]);
        let mut late = push(&shared, Urgency::Background, &[30]);
        let arrived = Mutex::new(Vec::new());
        let computed = Mutex::new(Vec::new());
        let compute: Compute<'_> = &|_, texts, between_layers| {
            let length = texts[0].ids.len();
            computed.lock().unwrap().push((length, "begun"));
            // While the first layer of the background text is computed, a document arrives. While the first layer of
            // the document is computed, a query arrives.
            let arrives = match length {
                30 => Some((Urgency::Document, 20)),
                20 => Some((Urgency::Query, 10)),
                _ => None,
            };
            if let Some((urgency, length)) = arrives {
                arrived
                    .lock()
                    .unwrap()
                    .push(push(&shared, urgency, &[length]));
            }
            between_layers();
            computed.lock().unwrap().push((length, "done"));
            Ok(texts
                .iter()
                .map(|text| output(text.ids.len() as f32))
                .collect())
        };
        let batch = shared.lock().next_batch(&Urgency::ALL).unwrap();
        run(&shared, batch, compute);
        assert_eq!(
            *computed.lock().unwrap(),
            [
                (30, "begun"),
                (20, "begun"),
                (10, "begun"),
                (10, "done"),
                (20, "done"),
                (30, "done")
            ]
        );
        let mut arrived = arrived.into_inner().unwrap();
        assert_eq!(values(&mut arrived[0]), [20.0]);
        assert_eq!(values(&mut arrived[1]), [10.0]);
        assert_eq!(values(&mut late), [30.0]);
    }

    #[test]
    fn a_caller_that_leaves_during_its_batch_gets_no_one_elses_outputs_assigned() {
        let (shared, mut responses) = with(&[&[1], &[2]]);
        drop(responses.remove(0));
        let compute: Compute<'_> = &|_, texts, between_layers| {
            between_layers();
            Ok(texts
                .iter()
                .map(|text| output(text.ids.len() as f32))
                .collect())
        };
        let batch = shared.lock().next_batch(&Urgency::ALL).unwrap();
        run(&shared, batch, compute);
        assert_eq!(values(&mut responses[0]), [2.0]);
    }

    #[test]
    fn background_work_waits_for_a_search_that_just_had_its_query_computed_but_not_forever() {
        let (shared, _responses) = with(&[]);
        let more_urgent = &Urgency::ALL[..Urgency::Background as usize];
        let now = Instant::now();
        shared.lock().last_query = Some(now);
        let forever = now + Duration::from_secs(3600);
        assert!(next_more_urgent(&shared, more_urgent, Some(forever)).is_none());
        assert!(now.elapsed() >= AFTER_QUERY, "it waited for the search");
        // A search that never ends.
        shared.lock().last_query = Some(forever);
        assert!(next_more_urgent(&shared, more_urgent, Some(now + AFTER_QUERY)).is_none());
        assert!(
            next_more_urgent(&shared, &[Urgency::Query], None).is_none(),
            "a write does not wait"
        );
    }

    #[test]
    fn each_caller_gets_its_own_outputs_and_abandoned_jobs_are_removed() {
        let (shared, mut responses) = with(&[&[1, 2], &[3], &[4]]);
        finish(
            &shared,
            Urgency::Document,
            3,
            Ok(vec![output(1.0), output(2.0), output(3.0)]),
        );
        assert_eq!(values(&mut responses[0]), [1.0, 2.0]);
        assert_eq!(values(&mut responses[1]), [3.0]);
        assert!(responses[2].try_recv().is_err(), "not computed yet");
        drop(responses);
        let mut state = shared.lock();
        state.remove_abandoned(&Urgency::ALL);
        assert_eq!(state.queues[Urgency::Document as usize].texts, 0);
        assert!(state.next_batch(&Urgency::ALL).is_none());
    }
}
