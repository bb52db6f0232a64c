//! SQLite and the oracle select the same entries for random filters. A broken operator would be detected.

use std::cell::Cell;
use std::collections::HashMap;

use context_model::{Comparison, Condition, Filter, MetadataPath, Operator};
use context_store::{Page, StoredEntry, oracle};
use context_store_conformance::generate::{FIELDS, INDEXED, Kind, Pools};
use context_test_support::Random;
use diesel::prelude::*;
use diesel::sql_types::BigInt;

use super::store::{OWNER, insert, open, path, row_id};
use crate::filter::{compile, select};
use crate::sql::{Fragment, query};

const STORES: u64 = 420;
const ENTRIES: i64 = 24;
/// Number of filters for each store, operator and kind of value. The first is tested with [`Store::selected`], the
/// second with [`Store::compiled`].
const ROUNDS: usize = 2;

/// A page that no result exceeds.
const ALL: Page = Page {
    limit: 100,
    offset: 0,
};

thread_local! {
    static BROKEN: Cell<Option<Operator>> = const { Cell::new(None) };
}

/// The condition with its operator broken in a subtle way, if the test requests it.
pub fn broken(condition: &Condition) -> Option<Condition> {
    let operator = BROKEN
        .get()
        .filter(|broken| *broken == operator_of(&condition.comparison))?;
    let comparison = match (operator, condition.comparison.clone()) {
        (
            Operator::Eq,
            Comparison::Eq {
                value,
                case_sensitive,
            },
        ) => Comparison::Eq {
            value,
            case_sensitive: !case_sensitive,
        },
        (
            Operator::Ne,
            Comparison::Ne {
                value,
                case_sensitive,
            },
        ) => Comparison::NotIn {
            values: vec![value],
            case_sensitive,
        },
        (Operator::Gt, Comparison::Gt(bound)) => Comparison::Gte(bound),
        (Operator::Gte, Comparison::Gte(bound)) => Comparison::Gt(bound),
        (Operator::Lt, Comparison::Lt(bound)) => Comparison::Lte(bound),
        (Operator::Lte, Comparison::Lte(bound)) => Comparison::Lt(bound),
        (
            Operator::In,
            Comparison::In {
                values,
                case_sensitive,
            },
        ) => Comparison::In {
            values: values[..1].to_vec(),
            case_sensitive,
        },
        (
            Operator::NotIn,
            Comparison::NotIn {
                mut values,
                case_sensitive,
            },
        ) => Comparison::Ne {
            value: values.swap_remove(0),
            case_sensitive,
        },
        (Operator::Exists | Operator::IsNotNull, _) => Comparison::NotIn {
            values: vec![context_model::Scalar::Int(5)],
            case_sensitive: true,
        },
        (Operator::NotExists, _) => Comparison::IsNull,
        (Operator::IsNull, _) => Comparison::NotExists,
        (
            Operator::Contains,
            Comparison::Contains {
                text,
                case_sensitive,
            },
        ) => Comparison::StartsWith {
            text,
            case_sensitive,
        },
        (
            Operator::StartsWith,
            Comparison::StartsWith {
                text,
                case_sensitive,
            },
        ) => Comparison::Contains {
            text,
            case_sensitive,
        },
        (
            Operator::EndsWith,
            Comparison::EndsWith {
                text,
                case_sensitive,
            },
        ) => Comparison::Contains {
            text,
            case_sensitive,
        },
        (
            Operator::ArrayContains,
            Comparison::ArrayContains {
                value,
                case_sensitive,
            },
        ) => Comparison::ArrayContains {
            value,
            case_sensitive: !case_sensitive,
        },
        (_, other) => other,
    };
    Some(Condition {
        path: condition.path.clone(),
        comparison,
    })
}

const fn operator_of(comparison: &Comparison) -> Operator {
    match comparison {
        Comparison::Eq { .. } => Operator::Eq,
        Comparison::Ne { .. } => Operator::Ne,
        Comparison::Gt(_) => Operator::Gt,
        Comparison::Gte(_) => Operator::Gte,
        Comparison::Lt(_) => Operator::Lt,
        Comparison::Lte(_) => Operator::Lte,
        Comparison::In { .. } => Operator::In,
        Comparison::NotIn { .. } => Operator::NotIn,
        Comparison::Exists => Operator::Exists,
        Comparison::NotExists => Operator::NotExists,
        Comparison::IsNull => Operator::IsNull,
        Comparison::IsNotNull => Operator::IsNotNull,
        Comparison::Contains { .. } => Operator::Contains,
        Comparison::StartsWith { .. } => Operator::StartsWith,
        Comparison::EndsWith { .. } => Operator::EndsWith,
        Comparison::ArrayContains { .. } => Operator::ArrayContains,
    }
}

struct Store {
    conn: SqliteConnection,
    entries: Vec<StoredEntry>,
    indexed: Vec<MetadataPath>,
    pools: Pools,
    random: Random,
}

impl Store {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let pools = Pools::new(&mut random);
        let indexed: Vec<_> = if seed.is_multiple_of(2) {
            FIELDS[..INDEXED].iter().map(|f| path(f)).collect()
        } else {
            Vec::new()
        };
        let mut conn = open(&indexed);
        let entries: Vec<_> = (1..=ENTRIES)
            .map(|id| pools.entry(&mut random, id))
            .collect();
        conn.transaction(|conn| {
            for entry in &entries {
                insert(conn, OWNER, entry);
                // Another owner's entry must never be selected.
                if random.one_in(4) {
                    insert(conn, OWNER + 1, entry);
                }
            }
            QueryResult::Ok(())
        })
        .unwrap();
        Self {
            conn,
            entries,
            indexed,
            pools,
            random,
        }
    }

    /// The ids that satisfy the filter according to the oracle, newest first.
    fn expected(&self, filter: &Filter) -> Vec<i64> {
        let mut found: Vec<_> = self
            .entries
            .iter()
            .filter(|entry| oracle::matches(filter, entry))
            .collect();
        found.sort_by_key(|entry| std::cmp::Reverse((entry.created_at, entry.id)));
        found
            .into_iter()
            .map(|entry| row_id(OWNER, entry.id))
            .collect()
    }

    /// The ids that a search by SQLite selects for this page.
    fn selected(&mut self, filter: &Filter, page: Page) -> Vec<i64> {
        select(&mut self.conn, filter, OWNER, page, &self.indexed, ENTRIES)
            .unwrap()
            .row_ids
    }

    /// The ids that the condition alone selects, with any plan that SQLite chooses.
    fn compiled(&mut self, filter: &Filter) -> Vec<i64> {
        #[derive(QueryableByName)]
        struct Row {
            #[diesel(sql_type = BigInt)]
            row_id: i64,
        }
        let mut statement = Fragment::new("SELECT row_id FROM entries WHERE ");
        statement
            .append(compile(filter, OWNER))
            .push(" ORDER BY created_at DESC, row_id DESC");
        query::<Row>(&mut self.conn, &statement)
            .unwrap()
            .into_iter()
            .map(|row| row.row_id)
            .collect()
    }
}

/// A page that begins and ends among the first results.
fn short_page(random: &mut Random) -> Page {
    let (limit, offset) = (1 + random.below(5), random.below(4));
    Page {
        limit: u32::try_from(limit).expect("small"),
        offset: u64::try_from(offset).expect("small"),
    }
}

/// The part of a whole result that is on this page.
fn on_page(all: &[i64], page: Page) -> Vec<i64> {
    let offset = usize::try_from(page.offset).expect("small");
    let limit = usize::try_from(page.limit).expect("small");
    all.iter().copied().skip(offset).take(limit).collect()
}

#[test]
fn random_filters_select_what_the_oracle_selects() {
    // Number of cases that select a proper, non-empty subset.
    let mut hits: HashMap<(Operator, Kind), usize> = HashMap::new();
    let (mut cases, mut cut) = (0_usize, 0_usize);
    for seed in 0..STORES {
        let mut store = Store::new(seed);
        for operator in Operator::ALL {
            for (kind, round) in Kind::of(operator)
                .iter()
                .flat_map(|kind| (0..ROUNDS).map(move |round| (*kind, round)))
            {
                let filter = store
                    .pools
                    .clone()
                    .filter(&mut store.random, operator, kind);
                let expected = store.expected(&filter);
                if round == 0 {
                    let is_short = store.random.one_in(2);
                    let page = if is_short {
                        short_page(&mut store.random)
                    } else {
                        ALL
                    };
                    let wanted = on_page(&expected, page);
                    assert_eq!(
                        store.selected(&filter, page),
                        wanted,
                        "store {seed}, {page:?}, {filter:?}"
                    );
                    cut += usize::from(wanted.len() < expected.len());
                } else {
                    let found = store.compiled(&filter);
                    assert_eq!(found, expected, "store {seed}, {filter:?}");
                }
                let is_proper = !expected.is_empty() && expected.len() < store.entries.len();
                *hits.entry((operator, kind)).or_default() += usize::from(is_proper);
                cases += 1;
            }
        }
    }
    let proper: usize = hits.values().sum();
    eprintln!("{cases} cases, {proper} with a proper subset, {cut} with a page of it");
    assert!(cases >= 20_000, "{cases} cases");
    assert!(cut >= 1_000, "{cut} pages are shorter than the result");
    assert!(
        proper * 10 >= cases * 3,
        "{proper} of {cases} match a proper, non-empty subset"
    );
    for operator in Operator::ALL {
        for kind in Kind::of(operator) {
            let hit = hits.get(&(operator, *kind)).copied().unwrap_or(0);
            assert!(
                hit >= 1,
                "{operator:?} with {kind:?} never selects a proper, non-empty subset"
            );
        }
    }
}

#[test]
fn breaking_any_one_operator_is_noticed() {
    for operator in Operator::ALL {
        BROKEN.set(Some(operator));
        let noticed = (0..60).any(|seed| {
            let mut store = Store::new(seed);
            Kind::of(operator).iter().any(|kind| {
                (0..4).any(|_| {
                    let filter = store
                        .pools
                        .clone()
                        .filter(&mut store.random, operator, *kind);
                    let expected = store.expected(&filter);
                    // `selected` reads indexes first, with the operator intact. Their rows can hide the broken one.
                    store.selected(&filter, ALL) != expected || store.compiled(&filter) != expected
                })
            })
        });
        BROKEN.set(None);
        assert!(noticed, "a broken {operator:?} went unnoticed");
    }
}
