//! The call that a read belongs to: its deadline and its turn.
//!
//! The call is stored in a task-local variable, because all reads of an operation share it. A read outside of any call,
//! such as background work, has neither deadline nor turn.

#![expect(clippy::disallowed_methods, reason = "the deadlines of calls")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use context_model::Error;

/// Maximum part of the call's time that is reserved for the error response. A read that reaches its deadline can then
/// still say how to narrow the request.
const ERROR_RESERVE: Duration = Duration::from_secs(1);

tokio::task_local! {
    static CALL: Call;
}

#[derive(Clone)]
struct Call {
    deadline: Instant,
    turn: Option<Arc<dyn Turn>>,
}

/// A turn among the operations that may run at the same time. An operation releases it while it only waits.
#[async_trait]
pub trait Turn: Send + Sync {
    /// Releases the turn, so that another operation can run.
    fn leave(&self);

    /// Waits for a turn again.
    ///
    /// # Errors
    /// `OVERLOADED` when too many operations wait for a turn.
    async fn take(&self) -> Result<(), Error>;
}

/// Runs `operation` for a caller that waits at most `limit`. `turn` is the turn that the operation holds, if it needs
/// one.
pub async fn within<F: Future>(
    limit: Duration,
    turn: Option<Arc<dyn Turn>>,
    operation: F,
) -> F::Output {
    let deadline = Instant::now() + (limit - (limit / 10).min(ERROR_RESERVE));
    CALL.scope(Call { deadline, turn }, operation).await
}

/// The time by which a read of this call must end. `None` outside of a call.
#[must_use]
pub fn deadline() -> Option<Instant> {
    CALL.try_with(|call| call.deadline).ok()
}

/// The time until the [`deadline`]. `None` outside of a call.
#[must_use]
pub fn time_left() -> Option<Duration> {
    deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()))
}

/// Awaits something other than the call's own work, and releases its turn in the meantime.
///
/// # Errors
/// The errors of [`Turn::take`].
pub async fn without_turn<F: Future>(waiting: F) -> Result<F::Output, Error> {
    let Some(turn) = CALL.try_with(|call| call.turn.clone()).ok().flatten() else {
        return Ok(waiting.await);
    };
    turn.leave();
    let waited = waiting.await;
    turn.take().await?;
    Ok(waited)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Noted(Mutex<Vec<&'static str>>);

    impl Noted {
        fn note(&self, what: &'static str) {
            self.0.lock().unwrap().push(what);
        }
    }

    #[async_trait]
    impl Turn for Noted {
        fn leave(&self) {
            self.note("leave");
        }

        async fn take(&self) -> Result<(), Error> {
            self.note("take");
            Ok(())
        }
    }

    #[test]
    fn a_read_ends_before_its_caller_gives_up_and_one_without_a_caller_never_has_to() {
        assert_eq!(deadline(), None);
        let started = Instant::now();
        let limit = Duration::from_secs(60);
        let ends = futures::executor::block_on(within(limit, None, async { deadline() }))
            .expect("it has a deadline");
        assert!(
            ends > started + limit / 2 && ends < started + limit,
            "{:?}",
            ends - started
        );
    }

    #[test]
    fn an_operation_waits_without_its_turn() {
        let noted = Arc::new(Noted::default());
        let waiting = async {
            noted.note("wait");
            7
        };
        let turn: Arc<dyn Turn> = noted.clone();
        let waited = futures::executor::block_on(within(
            Duration::from_secs(1),
            Some(turn),
            without_turn(waiting),
        ));
        assert_eq!(waited.unwrap(), 7);
        assert_eq!(*noted.0.lock().unwrap(), ["leave", "wait", "take"]);
    }
}
