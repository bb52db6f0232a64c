//! The faults of a round, drawn by its seed.

use std::fmt;

use context_test_support::Random;

/// Which database a round uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// One service on a SQLite file.
    Sqlite,
    /// Two services on a PostgreSQL database.
    Postgres,
}

/// What happens to the services and their database while there are writers and followers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGTERM, and a new start.
    Stop,
    /// `kill -9`, and a new start.
    Kill,
    /// Most changes leave the feed.
    Compaction,
    /// The services are stopped, and the database is put back to an older backup.
    OlderCopy,
    /// A snapshot is cut in the middle.
    SnapshotCut,
    /// A thread with many entries is deleted.
    ThreadDelete,
    /// PostgreSQL is stopped, with or without a shutdown, and started again.
    Restart,
    /// PostgreSQL crashes, and an asynchronous standby that lacks the last commits takes over.
    Promotion,
}

use Fault::{Compaction, Kill, OlderCopy, Promotion, Restart, SnapshotCut, Stop, ThreadDelete};

/// The first fault of a round, by the last digit of its seed. So any ten seeds in a row have every kind.
const FIRST_ON_SQLITE: [Fault; 10] = [
    Kill,
    Compaction,
    OlderCopy,
    SnapshotCut,
    Stop,
    OlderCopy,
    ThreadDelete,
    SnapshotCut,
    Compaction,
    OlderCopy,
];
const FIRST_ON_POSTGRES: [Fault; 10] = [
    Kill,
    Compaction,
    Restart,
    SnapshotCut,
    Stop,
    Promotion,
    ThreadDelete,
    Promotion,
    OlderCopy,
    Restart,
];
/// The second fault. A delete of a long thread takes too long for every round.
const SECOND_ON_SQLITE: [Fault; 5] = [Stop, Kill, Compaction, OlderCopy, SnapshotCut];
const SECOND_ON_POSTGRES: [Fault; 7] = [
    Stop,
    Kill,
    Compaction,
    OlderCopy,
    SnapshotCut,
    Restart,
    Promotion,
];

impl Fault {
    /// Every kind that the rounds of a backend have.
    #[must_use]
    pub const fn of(backend: Backend) -> &'static [Self] {
        match backend {
            Backend::Sqlite => &[Stop, Kill, Compaction, OlderCopy, SnapshotCut, ThreadDelete],
            Backend::Postgres => &[
                Stop,
                Kill,
                Compaction,
                OlderCopy,
                SnapshotCut,
                ThreadDelete,
                Restart,
                Promotion,
            ],
        }
    }

    /// Whether it can happen in a round whose services are processes of their own, or run inside the test.
    const fn fits(self, is_subprocess: bool) -> bool {
        match self {
            Kill => is_subprocess,
            // The test starts the compaction itself, so the service must run inside the test.
            Compaction => !is_subprocess,
            Stop | OlderCopy | SnapshotCut | ThreadDelete | Restart | Promotion => true,
        }
    }

    /// Whether both can happen in one round. A promoted standby has no standby of its own, and lacks the backup.
    const fn goes_with(self, other: Self) -> bool {
        !matches!(
            (self, other),
            (Promotion, Promotion | OlderCopy) | (OlderCopy, Promotion)
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stop => "SIGTERM",
            Kill => "kill -9",
            Compaction => "compaction",
            OlderCopy => "older backup",
            SnapshotCut => "cut snapshot",
            ThreadDelete => "long delete",
            Restart => "restart of PostgreSQL",
            Promotion => "promotion",
        })
    }
}

/// What a round does at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Makes the backup to which a later fault returns.
    BackUp,
    /// Ends the replication to the standby that a later fault promotes.
    Detach,
    Fault(Fault),
}

/// What a round does.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Whether each service is a process of its own.
    pub is_subprocess: bool,
    pub faults: [Fault; 2],
    /// The steps, each with the number of requests after which it is taken.
    pub steps: Vec<(usize, Step)>,
}

impl Plan {
    pub fn new(backend: Backend, seed: u64, requests: usize, random: &mut Random) -> Self {
        // One round in five runs the real program, which can be killed.
        let is_subprocess = seed.is_multiple_of(5);
        let (first, second): (_, &[Fault]) = match backend {
            Backend::Sqlite => (FIRST_ON_SQLITE, &SECOND_ON_SQLITE),
            Backend::Postgres => (FIRST_ON_POSTGRES, &SECOND_ON_POSTGRES),
        };
        let first = first[(seed % 10) as usize];
        let can_follow = |fault: &Fault| fault.fits(is_subprocess) && fault.goes_with(first);
        let second: Vec<Fault> = second.iter().copied().filter(can_follow).collect();
        let faults = [first, *random.pick(&second)];
        let mut steps = Vec::new();
        for fault in faults {
            let moment = random.below(requests);
            match fault {
                OlderCopy => steps.push((random.below(moment + 1), Step::BackUp)),
                Promotion => {
                    let lost = random.below(40);
                    steps.push((moment.saturating_sub(lost), Step::Detach));
                }
                Stop | Kill | Compaction | SnapshotCut | ThreadDelete | Restart => {}
            }
            steps.push((moment, Step::Fault(fault)));
        }
        steps.sort_by_key(|(moment, _)| *moment);
        Self {
            is_subprocess,
            faults,
            steps,
        }
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_rounds_have_each_fault_and_none_that_cannot_happen() {
        for backend in [Backend::Sqlite, Backend::Postgres] {
            for start in 0..100 {
                let plan = |seed| Plan::new(backend, seed, 200, &mut Random::new(seed));
                let plans: Vec<Plan> = (start..start + 10).map(plan).collect();
                for fault in Fault::of(backend) {
                    assert!(
                        plans.iter().any(|plan| plan.has(*fault)),
                        "{fault} from {start}"
                    );
                }
                for Plan {
                    is_subprocess,
                    faults,
                    ..
                } in plans
                {
                    let [first, second] = faults;
                    assert!(
                        first.fits(is_subprocess) && second.fits(is_subprocess),
                        "{faults:?}"
                    );
                    assert!(
                        first.goes_with(second) && second.goes_with(first),
                        "{faults:?}"
                    );
                }
            }
        }
    }
}
