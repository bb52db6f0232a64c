//! Tests the full-text table alone. Entries are inserted without the writer.

mod agreement;

use context_model::{
    Comparison, Condition, ContentType, Filter, JsonObject, Scalar, Source, Tags, ThreadId,
    Timestamp,
};
use context_store::{ContextWindow, FtsSearch, Page, StoredEntry};
use context_text::{Analyzer, Language, Mode, parse};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use serde_json::json;

use super::{Document, Found, create_table, delete, insert, rebuild, search};
use crate::collection::Collection;
use crate::filter::tests::store::{self, OWNER, path, row_id};
use crate::indexable::Indexable;
use crate::schema::owners;

/// A database with the full-text tables of two owners.
struct Texts {
    conn: SqliteConnection,
    language: Language,
    /// The id of the last entry.
    last: i64,
}

impl Texts {
    fn new(language: Language) -> Self {
        crate::tokenizer::register();
        let mut conn = store::open(&[path("status")]);
        create_table(&mut conn, Collection::entries(OWNER), language).unwrap();
        create_table(&mut conn, Collection::entries(OWNER + 1), language).unwrap();
        for owner in [OWNER, OWNER + 1] {
            diesel::insert_into(owners::table)
                .values((
                    owners::owner.eq(owner),
                    owners::owner_id.eq(format!("owner {owner}")),
                    owners::revision.eq(0),
                    owners::next_id.eq(1),
                    owners::entry_count.eq(0),
                    owners::user_count.eq(0),
                    owners::agent_count.eq(0),
                    owners::multimodal_count.eq(0),
                    owners::image_count.eq(0),
                    owners::thread_count.eq(0),
                    owners::tag_count.eq(0),
                ))
                .execute(&mut conn)
                .unwrap();
        }
        Self {
            conn,
            language,
            last: 0,
        }
    }

    fn english(texts: &[&str]) -> Self {
        let mut all = Self::new(Language::English);
        for text in texts {
            all.add(text);
        }
        all
    }

    fn add(&mut self, text: &str) -> i64 {
        self.put(OWNER, |_| {}, text)
    }

    fn put(&mut self, owner: i64, change: impl FnOnce(&mut StoredEntry), text: &str) -> i64 {
        self.put_after(owner, change, "", text)
    }

    fn put_after(
        &mut self,
        owner: i64,
        change: impl FnOnce(&mut StoredEntry),
        context: &str,
        text: &str,
    ) -> i64 {
        self.last += 1;
        let mut entry = store::entry(self.last, JsonObject::new());
        text.clone_into(&mut entry.text);
        change(&mut entry);
        store::insert(&mut self.conn, owner, &entry);
        let document = Document {
            row_id: row_id(owner, entry.id),
            text: &Indexable::analyzed(&Analyzer::new(self.language), &entry.text),
            context,
            thread_id: &entry.thread_id,
            source: entry.source,
            content_type: entry.content_type,
            tags: &entry.tags,
        };
        insert(&mut self.conn, owner, &document).unwrap();
        self.last
    }

    fn search(&mut self, mode: Mode, text: &str, filter: &Filter, page: Page, cap: u32) -> Found {
        let parsed = parse(mode, text, &Analyzer::new(self.language))
            .unwrap()
            .expect("something to search for");
        search(
            &mut self.conn,
            &FtsSearch {
                query: parsed,
                ranking_cap: cap,
                context_weight: 0.0,
            },
            filter,
            Collection::entries(OWNER),
            page,
            &[path("status")],
        )
        .unwrap()
    }

    /// The matching ids, best first.
    fn find(&mut self, mode: Mode, text: &str) -> Vec<i64> {
        self.filtered(mode, text, &Filter::default())
    }

    fn filtered(&mut self, mode: Mode, text: &str, filter: &Filter) -> Vec<i64> {
        let found = self.search(mode, text, filter, PAGE, 5000);
        found
            .rows
            .iter()
            .map(|(row, _)| row & ((1 << 40) - 1))
            .collect()
    }

    /// The matching ids in ascending order.
    fn sorted(&mut self, mode: Mode, text: &str) -> Vec<i64> {
        let mut found = self.find(mode, text);
        found.sort_unstable();
        found
    }
}

const PAGE: Page = Page {
    limit: 100,
    offset: 0,
};

#[test]
fn words_are_found_by_their_stems_and_ranked() {
    let mut texts = Texts::english(&[
        "the database is running",
        "run run run, little fox",
        "a fox hides from the dogs in the very long grass that grows near the river",
        "unrelated",
    ]);
    assert_eq!(texts.find(Mode::Match, "running"), [2, 1]);
    assert_eq!(texts.sorted(Mode::Match, "foxes"), [2, 3]);
    assert_eq!(texts.find(Mode::Match, "databases run"), [1]);
    let found = texts.search(Mode::Match, "fox", &Filter::default(), PAGE, 5000);
    assert!(
        found.rows[0].1 > found.rows[1].1,
        "higher is better: {:?}",
        found.rows
    );
    assert!(found.rows.iter().all(|(_, score)| *score > 0.0));
}

#[test]
fn a_prefix_finds_words_and_not_only_stems() {
    let mut texts = Texts::english(&[
        "the generalization failed",
        "generous gifts",
        "general store",
    ]);
    assert_eq!(texts.sorted(Mode::Prefix, "generaliz"), [1]);
    assert_eq!(texts.sorted(Mode::Prefix, "gen"), [1, 2, 3]);
    assert_eq!(texts.sorted(Mode::Prefix, "generalization"), [1]);
    assert_eq!(texts.sorted(Mode::Boolean, "genero* OR stor*"), [2, 3]);
}

#[test]
fn a_stem_is_not_stemmed_again() {
    // The stem of the first word is itself a word with a different stem.
    let mut texts = Texts::english(&["generalizing quickly"]);
    assert_eq!(texts.find(Mode::Match, "generalizing"), [1]);
    assert_eq!(texts.find(Mode::Match, "generalizations"), [1]);
}

#[test]
fn phrases_and_boolean_operators_map_to_the_engine() {
    let mut texts = Texts::english(&[
        "red green blue",
        "green red",
        "red blue",
        "\"quoted\" AND text",
    ]);
    assert_eq!(texts.sorted(Mode::Phrase, "red green"), [1]);
    assert_eq!(texts.sorted(Mode::Boolean, "red NOT green"), [3]);
    assert_eq!(
        texts.sorted(Mode::Boolean, "(green OR blue) red"),
        [1, 2, 3]
    );
    assert_eq!(
        texts.sorted(Mode::Boolean, "\"green blue\" OR \"quoted and\""),
        [1, 4]
    );
    assert_eq!(texts.sorted(Mode::Phrase, "red blue"), [3]);
    assert_eq!(texts.sorted(Mode::Match, "quoted\" OR text:x* -- ^"), [4]);
}

#[test]
fn the_fallback_runs_only_when_nothing_has_all_the_words_under_the_filter() {
    let mut texts = Texts::new(Language::English);
    texts.put(OWNER, |e| e.thread_id = "a".into(), "apples and pears");
    texts.put(OWNER, |e| e.thread_id = "b".into(), "apples alone");
    let thread = |id: &str| Filter {
        thread_id: Some(ThreadId::from_stored(id.into())),
        ..Filter::default()
    };
    let both = texts.search(Mode::Match, "apples pears", &thread("a"), PAGE, 5000);
    assert!(!both.used_fallback);
    let one = texts.search(Mode::Match, "apples pears", &thread("b"), PAGE, 5000);
    assert!(one.used_fallback);
    assert_eq!(one.rows.len(), 1);
    let beyond = texts.search(
        Mode::Match,
        "apples pears",
        &thread("a"),
        Page {
            limit: 5,
            offset: 5,
        },
        5000,
    );
    assert!(
        !beyond.used_fallback,
        "an empty page is not an empty result"
    );
    assert!(beyond.rows.is_empty());
}

#[test]
fn chinese_japanese_and_korean_words_of_two_characters_are_found() {
    let mut texts = Texts::english(&[
        "我们选择了数据库",
        "東京都に住んでいます",
        "데이터베이스를 선택했다",
        "plain",
    ]);
    assert_eq!(texts.find(Mode::Match, "数据库"), [1]);
    assert_eq!(texts.find(Mode::Match, "选择"), [1]);
    assert_eq!(texts.find(Mode::Match, "東京"), [2]);
    assert_eq!(texts.find(Mode::Match, "선택"), [3]);
    assert_eq!(texts.find(Mode::Phrase, "京都"), [2]);
}

#[test]
fn german_words_are_found_without_their_umlauts_and_by_prefix() {
    let mut texts = Texts::new(Language::German);
    texts.add("Die Häuser sind schöner");
    assert_eq!(texts.find(Mode::Match, "haus"), [1]);
    assert_eq!(texts.find(Mode::Prefix, "häus"), [1]);
    assert_eq!(texts.find(Mode::Prefix, "hauser"), [1]);
}

#[test]
fn every_part_of_a_filter_narrows_a_search() {
    let mut texts = Texts::new(Language::English);
    let first = texts.put(
        OWNER,
        |e| {
            e.thread_id = "a".into();
            e.source = Source::Agent;
            e.content_type = ContentType::Multimodal;
            e.tags = vec!["x".into(), "y".into()];
            e.metadata = json!({"status": "Active", "other": 1})
                .as_object()
                .unwrap()
                .into();
        },
        "apple",
    );
    for _ in 0..10 {
        texts.add("apple");
    }
    texts.put(OWNER + 1, |e| e.thread_id = "a".into(), "apple");
    let status = |value: &str| Condition {
        path: path("status"),
        comparison: Comparison::Eq {
            value: Scalar::Text(value.into()),
            case_sensitive: false,
        },
    };
    let other = Condition {
        path: path("other"),
        comparison: Comparison::Eq {
            value: Scalar::Int(1),
            case_sensitive: false,
        },
    };
    for filter in [
        Filter {
            thread_id: Some(ThreadId::from_stored("a".into())),
            ..Filter::default()
        },
        Filter {
            source: Some(Source::Agent),
            ..Filter::default()
        },
        Filter {
            content_type: Some(ContentType::Multimodal),
            ..Filter::default()
        },
        Filter {
            tags: Some(Tags::from_normalised(vec!["no".into(), "y".into()])),
            ..Filter::default()
        },
        Filter {
            conditions: vec![status("active")],
            ..Filter::default()
        },
        Filter {
            conditions: vec![other.clone()],
            ..Filter::default()
        },
        Filter {
            conditions: vec![status("active"), other],
            source: Some(Source::Agent),
            ..Filter::default()
        },
        Filter {
            created_to: Some(Timestamp(1000)),
            ..Filter::default()
        },
    ] {
        assert_eq!(
            texts.filtered(Mode::Match, "apple", &filter),
            [first],
            "{filter:?}"
        );
    }
    assert!(
        texts
            .filtered(
                Mode::Match,
                "apple",
                &Filter {
                    conditions: vec![status("done")],
                    ..Filter::default()
                }
            )
            .is_empty()
    );
}

#[test]
fn tags_and_threads_in_a_text_are_words_and_no_scope() {
    let mut texts = Texts::english(&["su sa ct cm", "\u{1}verbatim words running"]);
    assert_eq!(texts.find(Mode::Match, "sa"), [1]);
    assert_eq!(
        texts.find(Mode::Match, "run"),
        [2],
        "a text that begins with the marker is still analyzed"
    );
    assert_eq!(
        texts.filtered(
            Mode::Match,
            "cm",
            &Filter {
                source: Some(Source::Agent),
                ..Filter::default()
            }
        ),
        [0_i64; 0]
    );
}

#[test]
fn the_cap_ranks_the_newest_matches_and_says_so() {
    let mut texts = Texts::english(&["word", "word", "word word", "word", "word"]);
    let found = texts.search(Mode::Match, "word", &Filter::default(), PAGE, 3);
    assert_eq!(found.capped_at, Some(3));
    let ids: Vec<i64> = found.rows.iter().map(|(row, _)| row & 0xff).collect();
    assert_eq!(ids, [3, 5, 4]);
    let all = texts.search(Mode::Match, "word", &Filter::default(), PAGE, 5);
    assert_eq!(all.capped_at, None);
}

#[test]
fn a_filter_that_few_matches_satisfy_is_not_starved_by_the_cap() {
    let mut texts = Texts::new(Language::English);
    let rare = texts.put(
        OWNER,
        |e| {
            e.metadata = json!({"status": "rare", "n": 7})
                .as_object()
                .unwrap()
                .into()
        },
        "word",
    );
    for _ in 0..50 {
        texts.add("word");
    }
    for (field, value) in [
        ("status", Scalar::Text("rare".into())),
        ("n", Scalar::Int(7)),
    ] {
        let condition = Condition {
            path: path(field),
            comparison: Comparison::Eq {
                value,
                case_sensitive: false,
            },
        };
        let found = texts.search(
            Mode::Match,
            "word",
            &Filter {
                conditions: vec![condition],
                ..Filter::default()
            },
            PAGE,
            5,
        );
        assert_eq!(found.rows.len(), 1);
        assert_eq!(found.rows[0].0, row_id(OWNER, rare));
        assert_eq!(found.capped_at, None);
    }
}

#[test]
fn paging_repeats_and_skips_nothing() {
    let mut texts = Texts::new(Language::English);
    for i in 0..300 {
        let thread = if i % 3 == 0 { "a" } else { "b" };
        texts.put(
            OWNER,
            |e| e.thread_id = thread.into(),
            &"word ".repeat(1 + i % 5),
        );
    }
    for filter in [
        Filter::default(),
        Filter {
            thread_id: Some(ThreadId::from_stored("b".into())),
            ..Filter::default()
        },
    ] {
        let whole = texts
            .search(
                Mode::Match,
                "word",
                &filter,
                Page {
                    limit: 1000,
                    offset: 0,
                },
                5000,
            )
            .rows;
        let mut paged = Vec::new();
        for offset in (0..320).step_by(7) {
            paged.extend(
                texts
                    .search(
                        Mode::Match,
                        "word",
                        &filter,
                        Page { limit: 7, offset },
                        5000,
                    )
                    .rows,
            );
        }
        assert_eq!(paged, whole);
        assert!(
            whole.is_sorted_by(|a, b| (a.1, a.0) >= (b.1, b.0)),
            "score, then id, descending"
        );
    }
}

#[test]
fn tags_do_not_lengthen_a_document() {
    let mut texts = Texts::new(Language::English);
    texts.put(
        OWNER,
        |e| e.tags = (0..100).map(|i| format!("tag{i}")).collect(),
        "apple pie",
    );
    texts.add("apple tart");
    let found = texts.search(Mode::Match, "apple", &Filter::default(), PAGE, 5000);
    assert_eq!(found.rows[0].1.to_bits(), found.rows[1].1.to_bits());
}

#[test]
fn a_score_is_bm25_of_padded_lengths_whatever_narrows_the_search() {
    let mut texts = Texts::english(&["apple apple pie"]);
    texts.put_after(OWNER, |_| {}, "appl", "pear");
    texts.add("plum cake today");
    for _ in 0..6 {
        texts.add("grape");
    }
    let norm = |length: f64| 1.2 * (0.25 + 0.75 * (length + 60.0) / (13.0 / 9.0 + 60.0));
    let term =
        |idf: f64, frequency: f64, length: f64| idf * frequency * 2.2 / (frequency + norm(length));
    let (among_two, alone) = ((7.5_f64 / 2.5).ln(), (8.5_f64 / 1.5).ln());
    let in_threads = Filter {
        thread_id: Some(ThreadId::from_stored("t1".into())),
        ..Filter::default()
    };
    for filter in [Filter::default(), in_threads] {
        for (context_weight, expected) in [
            (0.0, vec![(1, term(alone, 2.0, 3.0))]),
            (
                0.4,
                vec![
                    (1, term(among_two, 2.0, 3.0)),
                    (2, term(among_two, 0.4, 1.0)),
                ],
            ),
        ] {
            let query = parse(Mode::Match, "apple", &Analyzer::new(Language::English))
                .unwrap()
                .unwrap();
            let words = FtsSearch {
                query,
                ranking_cap: 5000,
                context_weight,
            };
            let found = search(
                &mut texts.conn,
                &words,
                &filter,
                Collection::entries(OWNER),
                PAGE,
                &[path("status")],
            )
            .unwrap()
            .rows;
            let close = |((row, score), (id, wanted)): (&(i64, f64), &(i64, f64))| {
                *row == row_id(OWNER, *id) && (score - wanted).abs() < 1e-9
            };
            assert_eq!(found.len(), expected.len());
            assert!(
                found.iter().zip(&expected).all(close),
                "{found:?}, not {expected:?}"
            );
        }
    }
}

#[test]
fn one_owners_words_do_not_move_anothers_scores() {
    let mut texts = Texts::english(&["apple", "pear"]);
    let before = texts
        .search(Mode::Match, "apple", &Filter::default(), PAGE, 5000)
        .rows;
    for _ in 0..50 {
        texts.put(OWNER + 1, |_| {}, "apple apple apple and much more");
    }
    assert_eq!(
        texts
            .search(Mode::Match, "apple", &Filter::default(), PAGE, 5000)
            .rows,
        before
    );
}

#[test]
fn a_deleted_entry_is_gone_and_can_come_back_changed() {
    let mut texts = Texts::english(&["apple", "pear"]);
    delete(
        &mut texts.conn,
        Collection::entries(OWNER),
        row_id(OWNER, 1),
    )
    .unwrap();
    assert!(texts.find(Mode::Match, "apple").is_empty());
    let document = Document {
        row_id: row_id(OWNER, 1),
        text: &Indexable::plain("plum"),
        context: "",
        thread_id: "t1",
        source: Source::User,
        content_type: ContentType::Text,
        tags: &[],
    };
    insert(&mut texts.conn, OWNER, &document).unwrap();
    assert_eq!(texts.find(Mode::Match, "plum"), [1]);
}

#[test]
fn another_language_rebuilds_the_tables_once() {
    let mut texts = Texts::english(&[]);
    for i in 0..45 {
        texts.add(if i == 0 { "die Häuser" } else { "a house" });
    }
    texts.put(OWNER + 1, |_| {}, "Häuser");
    assert!(texts.find(Mode::Match, "haus").is_empty());
    assert!(rebuild(&mut texts.conn, Language::German, ContextWindow::NONE).unwrap());
    texts.language = Language::German;
    assert_eq!(texts.find(Mode::Match, "haus"), [1]);
    assert_eq!(texts.find(Mode::Match, "house").len(), 44);
    let query = parse(Mode::Match, "haus", &Analyzer::new(Language::German));
    let of_other = search(
        &mut texts.conn,
        &FtsSearch {
            query: query.unwrap().unwrap(),
            ranking_cap: 5000,
            context_weight: 0.0,
        },
        &Filter::default(),
        Collection::entries(OWNER + 1),
        PAGE,
        &[],
    );
    assert_eq!(of_other.unwrap().rows.len(), 1, "the other owner's table");
    assert!(!rebuild(&mut texts.conn, Language::German, ContextWindow::NONE).unwrap());
}

#[test]
fn hostile_texts_and_long_queries_are_just_text() {
    let long = "x".repeat(200_000);
    let emoji = "😀".repeat(1000);
    let mut texts = Texts::english(&[
        "\u{1}",
        "\u{1} a \u{1}",
        "\"",
        "' OR 1=1 --",
        &long,
        &emoji,
        "NEAR(a b) ^c {text}: d",
        "\u{feff}é\u{301}\u{200d}",
    ]);
    for mode in [Mode::Match, Mode::Prefix, Mode::Phrase] {
        for text in [
            "a",
            &long,
            "' OR 1=1",
            "NEAR(a b)",
            "{text} : d",
            "é",
            &"word ".repeat(3000),
        ] {
            texts.find(mode, text);
        }
    }
    assert_eq!(texts.find(Mode::Phrase, "' OR 1=1 --"), [4]);
    assert_eq!(texts.find(Mode::Match, "NEAR(a b)"), [7]);
    assert_eq!(texts.find(Mode::Phrase, "^c {text}: d"), [7]);
    let deep = format!("{}a{}", "(".repeat(31), ")".repeat(31));
    texts.find(Mode::Boolean, &deep);
    let nested = (0..30).fold("a".to_owned(), |inner, i| format!("(w{i} NOT {inner})"));
    texts.find(Mode::Boolean, &nested);
    let many = (0..64)
        .map(|i| format!("w{i}*"))
        .collect::<Vec<_>>()
        .join(" OR ");
    texts.find(Mode::Boolean, &many);
}

#[test]
fn a_text_is_indexed_the_same_before_the_queue_and_by_the_tokenizer() {
    let texts = [
        "Running runners ran; the RUNNING of a race, and again: running",
        "Ünïcödé café, naïve — 東京都に住む 한국어 텍스트 ไทย",
        "a/b_c-d.e@f 12,345.67 \u{1}x \u{2}y \u{3}z",
        "\u{2}begins with a mark \u{3}running",
        "\u{1}begins with the other",
        "",
        " \n ",
    ];
    let index_of = |indexable: &dyn Fn(&str) -> Indexable| {
        let mut all = Texts::new(Language::English);
        for (row_id, text) in (1..).zip(texts) {
            let text = &indexable(text);
            let document = Document {
                row_id,
                text,
                context: "",
                thread_id: "t",
                source: Source::User,
                content_type: ContentType::Text,
                tags: &[],
            };
            insert(&mut all.conn, OWNER, &document).unwrap();
        }
        all.conn
            .batch_execute(&format!(
                "CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, fts_{OWNER}, instance)"
            ))
            .unwrap();
        let places = "SELECT group_concat(term || ' ' || doc || ' ' || col || ' ' || offset, '; ' ORDER BY term, doc, col, offset) FROM temp.words";
        diesel::dsl::sql::<diesel::sql_types::Text>(places)
            .get_result::<String>(&mut all.conn)
            .unwrap()
    };
    let analyzer = Analyzer::new(Language::English);
    let before = index_of(&|text| Indexable::analyzed(&analyzer, text));
    assert_eq!(before, index_of(&|text| Indexable::plain(text)));
    assert!(
        before.contains("run 1 text 0; run 1 text 4; run 1 text 10")
            && before.contains("running 1 text 0"),
        "{before}"
    );
}
