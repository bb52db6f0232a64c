//! Seeded rounds of writers, followers and faults: what each follower receives is what was committed.

use std::collections::{BTreeMap, BTreeSet};

use context_faults::follow::fault::{Backend, Fault};
use context_faults::follow::round::Round;
use context_faults::follow::rounds::Rounds;
use context_faults::follow::{Change, Event, Filter, Log, Session, Start};
use context_test_support::seed;

/// The first seed that is tried for a round in which faults are planted.
const FIRST_EXAMPLE: u64 = 23;

/// Number of rounds that are tried.
const EXAMPLES: usize = 100;
/// The changes that the writers of ten rounds make.
const OPERATIONS: [(&str, &str); 7] = [
    ("context", "create"),
    ("context", "update"),
    ("context", "delete"),
    ("artifact", "create"),
    ("artifact", "update"),
    ("artifact", "restore"),
    ("artifact", "delete"),
];

/// The command that repeats a round. It is printed when the round panics.
struct Repeats(String);

impl Drop for Repeats {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

/// Runs the rounds of a backend, and reports each violation with the command that repeats its round.
async fn run_rounds(backend: Backend, variable: &str) {
    let Some(mut rounds) = Rounds::new(backend).await else {
        return;
    };
    let first = seed();
    let (mut views, mut failed) = (0, 0);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut operations = BTreeSet::new();
    let count = context_test_support::rounds(variable, 10);
    for number in 1..=count {
        let seed = first + number as u64 - 1;
        let repeats = Repeats(format!(
            "CONTEXT_FAULTS_SEED={seed} {variable}=1 cargo nextest run --workspace -E 'binary(follow)' repeats it"
        ));
        let round = rounds.run(seed).await;
        views += round.logs.iter().filter(|log| round.has_view(log)).count();
        for (what, count) in round.counts() {
            *counts.entry(what).or_default() += count;
        }
        let rows = round.history.0.iter().flat_map(|epoch| epoch.rows.values());
        operations.extend(rows.map(|row| (row.entity.clone(), row.operation.clone())));
        let wrong = round.violations();
        if !wrong.is_empty() {
            failed += 1;
            let (faults, Repeats(how)) = (&round.faults, &repeats);
            eprintln!("{wrong:#?}\nfaults: {faults:?}\n{how}");
        }
        if number == count || number.is_multiple_of(10) {
            eprintln!(
                "{backend:?}: {number} rounds from seed {first}, {views} views compared, {failed} rounds with \
                 violations; {counts:?}"
            );
        }
    }
    // Older backups and cut snapshots are planned for every ten rounds. They must also have had an effect.
    for what in ["states lost", "snapshots cut"] {
        let is_seen = counts.get(what).is_some_and(|count| *count > 0);
        assert!(count < 10 || is_seen, "no {what} in {count} rounds");
    }
    assert_eq!(failed, 0);
    for fault in Fault::of(backend) {
        assert!(
            count < 10 || counts.contains_key(&fault.to_string()),
            "no {fault} in {count} rounds"
        );
    }
    for (entity, operation) in OPERATIONS {
        assert!(
            count < 10 || operations.contains(&(entity.to_owned(), operation.to_owned())),
            "no {operation} of an {entity} in {count} rounds"
        );
    }
    assert!(
        count < 10 || views > 0,
        "no view was compared with the database"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_of_one_service_stay_in_step() {
    run_rounds(Backend::Sqlite, "CONTEXT_FAULTS_FOLLOW_SQLITE").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_of_two_services_stay_in_step() {
    run_rounds(Backend::Postgres, "CONTEXT_FAULTS_FOLLOW_POSTGRES").await;
}

/// A round with a stream of everything, with bodies, and its session with many changes. Nothing left the feed.
async fn example() -> (Round, Log, usize) {
    let mut rounds = Rounds::new(Backend::Sqlite).await.expect("SQLite");
    // The first fault of these seeds leaves the database as it is.
    let seeds = (FIRST_EXAMPLE..).filter(|seed| matches!(seed % 10, 3 | 4));
    for seed in seeds.take(EXAMPLES) {
        let round = rounds.run(seed).await;
        assert_eq!(round.violations(), [""; 0], "seed {seed}");
        let is_plain = round.history.0.len() == 1 && !round.history.0[0].is_compacted;
        let log = &round
            .logs
            .iter()
            .find(|log| log.filter == Filter::None && log.bodies && !log.lists);
        let Some(log) = log.filter(|log| is_plain && round.has_view(log)).cloned() else {
            continue;
        };
        let begins = |session: &Session| session.start != Start::Cursor;
        // Sessions before the last start are not part of the final view.
        let first = log.sessions.iter().rposition(begins).unwrap_or(0);
        let session = (first..log.sessions.len()).find(|number| {
            let session = &log.sessions[*number];
            let is_inside =
                |event: &&Event| matches!(event, Event::Change(change) if !change.commit_end);
            changes(session).len() > 20 && session.events.iter().any(|event| is_inside(&event))
        });
        if let Some(session) = session {
            eprintln!("the example is the round of seed {seed}");
            return (round, log, session);
        }
    }
    panic!("no example in {EXAMPLES} rounds")
}

/// The events of a session that are changes, with their indexes.
fn changes(session: &Session) -> Vec<(usize, &Change)> {
    let events = session.events.iter().enumerate();
    let changes = events.filter_map(|(index, event)| match event {
        Event::Change(change) => Some((index, change)),
        _ => None,
    });
    changes.collect()
}

fn change_at(session: &mut Session, index: usize) -> &mut Change {
    match &mut session.events[index] {
        Event::Change(change) => change,
        other => panic!("{other:?} is no change"),
    }
}

/// If the checker does not report each of these violations, the tests above prove nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_planted_fault_is_reported() {
    let (round, log, session) = example().await;
    let found = changes(&log.sessions[session]);
    let (index, revision) = (found[5].0, found[5].1.revision);
    let inside = found
        .iter()
        .find(|(_, change)| !change.commit_end)
        .expect("a long commit")
        .0;
    let plant = |words: &str, fault: &dyn Fn(&mut Session)| {
        let mut log = log.clone();
        fault(&mut log.sessions[session]);
        let wrong = round.violations_of(&log);
        assert!(
            wrong.iter().any(|line| line.contains(words)),
            "{words:?} is not in {wrong:#?}"
        );
    };
    plant("missing: [", &|session| _ = session.events.remove(index));
    plant("after everything up to", &|session| {
        session.events.swap(index, index + 1)
    });
    plant("after everything up to", &|session| {
        let twice = session.events[index].clone();
        session.events.insert(index, twice);
    });
    plant("a commit is split", &|session| {
        change_at(session, inside).commit_end = true
    });
    plant("instead of Row", &|session| {
        change_at(session, index).id = "another".to_owned()
    });
    plant("instead of Row", &|session| {
        change_at(session, index).operation = "left".to_owned()
    });
    plant("was never committed", &|session| {
        change_at(session, index).revision = 1 << 40
    });
    plant("after everything up to", &|session| {
        session.events.insert(index, Event::Bookmark(revision))
    });
    plant("a bookmark at", &|session| {
        session
            .events
            .insert(index + 1, Event::Bookmark(revision - 1))
    });
    plant("missing: [", &|session| {
        session.events[index] = Event::Bookmark(revision)
    });
    plant("nothing happened that justifies it", &|session| {
        session
            .events
            .insert(index, Event::Resync("CURSOR_COMPACTED".to_owned()));
    });
    plant("at the end", &|session| {
        for event in &mut session.events {
            if let Event::Change(change) = event {
                change.body = None;
            }
        }
    });

    // The stream is cut after a change, and continues one change later than its cursor.
    let mut cut = log.clone();
    let rest = cut.sessions[session].events.split_off(index + 1);
    let mut again = Session {
        epoch: 0,
        until: 0,
        start: Start::Cursor,
        events: rest,
    };
    again.events.insert(0, Event::Opened(revision));
    cut.sessions.insert(session + 1, again);
    assert_eq!(round.violations_of(&cut), [""; 0], "a cut is no fault");
    let mut late = cut.clone();
    late.sessions[session + 1].events[0] = Event::Opened(revision + 1);
    assert!(round.violations_of(&late)[0].contains("opens at"));
    let mut lossy = cut.clone();
    lossy.sessions[session + 1].events.remove(1);
    assert!(round.violations_of(&lossy)[0].contains("missing: ["));
    let mut unrequested = cut.clone();
    let end = Event::SnapshotEnd(revision);
    unrequested.sessions[session + 1].events.insert(1, end);
    assert!(round.violations_of(&unrequested)[0].contains("was not requested"));

    // A standby takes over while the stream runs: before all that the stream has, or after the change at its cursor.
    let taken_over = |common: i64| {
        let mut taken = round.clone();
        let rows = taken.history.current().rows.clone();
        taken.history.begin(common);
        taken.history.current().rows = rows;
        taken
    };
    let mut spanning = cut;
    spanning.sessions[session + 1].until = 1;
    for later in &mut spanning.sessions[session + 2..] {
        (later.epoch, later.until) = (1, 1);
    }
    assert_eq!(taken_over(revision).violations_of(&spanning), [""; 0]);
    spanning.sessions.truncate(session + 2);
    let wrong = taken_over(revision - 1).violations_of(&spanning);
    assert!(
        wrong.iter().any(|line| line.contains("which was replaced")),
        "{wrong:#?}"
    );
    let mut other = taken_over(revision - 1);
    let rows = other.history.current().rows.range_mut(revision..);
    rows.for_each(|(_, row)| row.entity_id = "another".to_owned());
    for event in &mut spanning.sessions[session + 1].events {
        if let Event::Change(change) = event {
            change.id = "another".to_owned();
        }
    }
    let wrong = other.violations_of(&spanning);
    assert!(
        wrong.iter().any(|line| line.contains("it went on at")),
        "{wrong:#?}"
    );

    // The log ends early.
    let mut early = log.clone();
    early.sessions.truncate(session + 1);
    early.sessions[session].events.truncate(index);
    assert!(round.violations_of(&early)[0].contains("it ends at"));

    // The follower received what its filter excludes.
    let narrow = Log {
        filter: Filter::Thread("quiet"),
        ..log.clone()
    };
    assert!(
        round
            .violations_of(&narrow)
            .iter()
            .any(|line| line.contains("which the filter excludes"))
    );

    // A cursor of a lost change is accepted.
    let mut restored = round;
    restored.history.begin(revision - 1);
    let mut accepted = log;
    let events = vec![Event::Opened(revision)];
    accepted.sessions.push(Session {
        epoch: 1,
        until: 1,
        start: Start::Cursor,
        events,
    });
    let wrong = restored.violations_of(&accepted);
    assert!(
        wrong.iter().any(|line| line.contains("was accepted")),
        "{wrong:#?}"
    );
}
