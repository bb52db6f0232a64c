//! Random entries and filters for the property tests, which compare the databases with the oracle. Their values
//! coincide often enough that a filter usually matches some entries, but not all. Everything panics on failure: it only
//! runs in tests.

mod content;

pub use content::{OWNERS, fill};

use context_model::{
    Comparison, Condition, ContentType, Filter, JsonObject, MetadataPath, ObjectText, Operator,
    Scalar, Source, Tags, ThreadId, ThreadSet, Timestamp, fold,
};
use context_store::StoredEntry;
use context_test_support::Random;
use serde_json::{Value, json};

/// Fields of the generated metadata. Some stores index the first [`INDEXED`] of them, the others none.
pub const FIELDS: [&str; 8] = [
    "status",
    "n",
    "flag",
    "list",
    "Status",
    "a-b.c_1",
    "deep.x.0.y",
    "mixed",
];
/// Number of indexed fields in stores that index any.
pub const INDEXED: usize = 6;

const TEXTS: [&str; 34] = [
    "active",
    "Active",
    "ACTIVE",
    "inactive",
    "act",
    "ÄB",
    "äb",
    "Äb c",
    "ΣΑΣ",
    "σας",
    "ΣΑΣΑ",
    "ΑΣ",
    "100%",
    "100 % sure",
    "a_b",
    "axb",
    "A_B",
    "",
    "5",
    "true",
    "null",
    "line\u{2028}end",
    "say \"hi\"",
    "[\"active\"]",
    "{\"a\":1}",
    "2025-01-01",
    "2025-01-01T10:00:00Z",
    "2025-06-30t00",
    "2025",
    "İx",
    "\u{212a}elvin",
    "straße",
    "\u{10ffff}\u{10ffff}",
    "back\\slash\n\t",
];

const INTS: [i64; 12] = [
    0,
    1,
    5,
    -5,
    100,
    9_007_199_254_740_992,
    9_007_199_254_740_993,
    -9_007_199_254_740_993,
    i64::MAX,
    i64::MAX - 1,
    i64::MIN,
    i64::MIN + 1,
];

const FLOATS: [f64; 16] = [
    -0.0,
    0.5,
    1.0,
    5.0,
    -5.0,
    0.1,
    0.300_000_000_000_000_04,
    99.999_999_999_999_99,
    9_007_199_254_740_992.0,
    9_007_199_254_740_994.0,
    9_223_372_036_854_775_808.0,
    -9_223_372_036_854_775_808.0,
    1e22,
    1.797_693_134_862_315_7e308,
    5e-324,
    2.225_073_858_507_201e-308,
];

/// A kind of value that a comparison takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is its name")]
pub enum Kind {
    Text,
    Int,
    Float,
    Bool,
    None,
}

impl Kind {
    /// The kinds of value that an operator accepts.
    #[must_use]
    pub fn of(operator: Operator) -> &'static [Self] {
        match operator {
            Operator::Eq
            | Operator::Ne
            | Operator::In
            | Operator::NotIn
            | Operator::ArrayContains => &[Self::Text, Self::Int, Self::Float, Self::Bool],
            Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte => {
                &[Self::Text, Self::Int, Self::Float]
            }
            Operator::Contains | Operator::StartsWith | Operator::EndsWith => &[Self::Text],
            Operator::Exists | Operator::NotExists | Operator::IsNull | Operator::IsNotNull => {
                &[Self::None]
            }
        }
    }
}

/// The usual values of a field in one store, so that equal values are common.
#[derive(Debug, Clone)]
pub struct Pools {
    texts: Vec<String>,
    ints: Vec<i64>,
    floats: Vec<f64>,
}

impl Pools {
    /// Generates the values to choose from.
    pub fn new(random: &mut Random) -> Self {
        let mut texts: Vec<String> = (0..5).map(|_| (*random.pick(&TEXTS)).to_owned()).collect();
        if random.one_in(10) {
            texts.push("Lang".repeat(2000));
        }
        let mut ints: Vec<i64> = (0..4).map(|_| *random.pick(&INTS)).collect();
        ints.push(random.next().cast_signed());
        let mut floats: Vec<f64> = (0..4).map(|_| *random.pick(&FLOATS)).collect();
        // Any finite double, and the next larger one.
        let any = f64::from_bits(random.next());
        if any.is_finite() {
            floats.extend([any, any.next_up()].into_iter().filter(|f| f.is_finite()));
        }
        Self {
            texts,
            ints,
            floats,
        }
    }

    fn scalar(&self, random: &mut Random, kind: Kind) -> Scalar {
        match kind {
            Kind::Text => Scalar::Text(random.pick(&self.texts).clone()),
            Kind::Int => Scalar::Int(*random.pick(&self.ints)),
            Kind::Float => Scalar::Float(*random.pick(&self.floats)),
            Kind::Bool | Kind::None => Scalar::Bool(random.one_in(2)),
        }
    }

    fn value(&self, random: &mut Random, depth: usize) -> Value {
        match random.below(if depth == 0 { 14 } else { 10 }) {
            0..=3 => json!(random.pick(&self.texts)),
            4..=5 => json!(random.pick(&self.ints)),
            6..=7 => json!(random.pick(&self.floats)),
            8 => json!(random.one_in(2)),
            9 => Value::Null,
            10..=12 => (0..random.below(4))
                .map(|_| self.value(random, depth + 1))
                .collect(),
            _ => json!({"a": self.value(random, depth + 1)}),
        }
    }

    /// Generates an entry of the store.
    pub fn entry(&self, random: &mut Random, id: i64) -> StoredEntry {
        let mut metadata = JsonObject::new();
        for (i, field) in FIELDS.iter().enumerate() {
            if random.one_in(8) {
                continue;
            }
            let value = match i {
                // In practice, most fields hold one kind of value.
                0 if !random.one_in(4) => json!(random.pick(&self.texts)),
                1 if !random.one_in(4) => json!(random.pick(&self.ints)),
                2 if !random.one_in(4) => json!(random.one_in(2)),
                3 if !random.one_in(4) => (0..1 + random.below(3))
                    .map(|_| self.value(random, 1))
                    .collect(),
                _ => self.value(random, 0),
            };
            let mut segments = field.split('.').collect::<Vec<_>>();
            let last = segments.pop().expect("a path has a segment");
            let mut object = &mut metadata;
            for segment in segments {
                let next = object.entry(segment).or_insert_with(|| json!({}));
                object = next.as_object_mut().expect("only objects were made");
            }
            object.insert(last.to_owned(), value);
        }
        let mut tags: Vec<String> = ["x", "y", "z%"]
            .into_iter()
            .filter(|_| random.one_in(3))
            .map(str::to_owned)
            .collect();
        tags.sort_unstable();
        StoredEntry {
            thread_id: (*random.pick(&["t1", "t2", "T1"])).to_owned(),
            source: *random.pick(&[Source::User, Source::Agent]),
            content_type: *random.pick(&[
                ContentType::Text,
                ContentType::Text,
                ContentType::Multimodal,
            ]),
            tags,
            // Times are not in the order of the ids, and some are equal.
            created_at: Timestamp(i64::try_from(random.below(30)).expect("small")),
            ..plain(id, metadata)
        }
    }

    /// Generates a condition with this operator and kind of value.
    pub fn condition(&self, random: &mut Random, operator: Operator, kind: Kind) -> Condition {
        let home = match (operator, kind) {
            (Operator::ArrayContains, _) => 3,
            (_, Kind::Text) => 0,
            (_, Kind::Int | Kind::Float) => 1,
            (_, Kind::Bool) => 2,
            (_, Kind::None) => random.below(FIELDS.len()),
        };
        let field = if random.one_in(3) {
            random.below(FIELDS.len())
        } else {
            home
        };
        let case_sensitive = random.one_in(2);
        let folded = |value: Scalar| match value {
            Scalar::Text(text) if !case_sensitive => Scalar::Text(fold(&text)),
            other => other,
        };
        let scalar = self.scalar(random, kind);
        let comparison = match operator {
            Operator::Eq => Comparison::Eq {
                value: folded(scalar),
                case_sensitive,
            },
            Operator::Ne => Comparison::Ne {
                value: folded(scalar),
                case_sensitive,
            },
            Operator::Gt => Comparison::Gt(scalar),
            Operator::Gte => Comparison::Gte(scalar),
            Operator::Lt => Comparison::Lt(scalar),
            Operator::Lte => Comparison::Lte(scalar),
            Operator::In | Operator::NotIn => {
                let mut values = vec![folded(scalar)];
                for _ in 0..random.below(3) {
                    let kind = *random.pick(&[Kind::Text, Kind::Int, Kind::Float, Kind::Bool]);
                    values.push(folded(self.scalar(random, kind)));
                }
                if operator == Operator::In {
                    Comparison::In {
                        values,
                        case_sensitive,
                    }
                } else {
                    Comparison::NotIn {
                        values,
                        case_sensitive,
                    }
                }
            }
            Operator::Exists => Comparison::Exists,
            Operator::NotExists => Comparison::NotExists,
            Operator::IsNull => Comparison::IsNull,
            Operator::IsNotNull => Comparison::IsNotNull,
            Operator::ArrayContains => Comparison::ArrayContains {
                value: folded(scalar),
                case_sensitive,
            },
            Operator::Contains | Operator::StartsWith | Operator::EndsWith => {
                let text = self.piece(random, operator);
                let text = if case_sensitive { text } else { fold(&text) };
                match operator {
                    Operator::Contains => Comparison::Contains {
                        text,
                        case_sensitive,
                    },
                    Operator::StartsWith => Comparison::StartsWith {
                        text,
                        case_sensitive,
                    },
                    _ => Comparison::EndsWith {
                        text,
                        case_sensitive,
                    },
                }
            }
        };
        Condition {
            path: path(FIELDS[field]),
            comparison,
        }
    }

    /// A part of a string that some entry may hold.
    fn piece(&self, random: &mut Random, operator: Operator) -> String {
        let chars: Vec<char> = random.pick(&self.texts).chars().collect();
        let from = if operator == Operator::StartsWith {
            0
        } else {
            random.below(chars.len() + 1)
        };
        let to = if operator == Operator::EndsWith {
            chars.len()
        } else {
            from + random.below(chars.len() - from + 1)
        };
        chars[from..to].iter().collect()
    }

    /// Generates a filter with a condition of this operator and kind. Some filters also have a second condition, of any
    /// operator, or a thread, source, tags, content type, times or threads of the caller.
    pub fn filter(&self, random: &mut Random, operator: Operator, kind: Kind) -> Filter {
        let mut filter = Filter {
            conditions: vec![self.condition(random, operator, kind)],
            ..Filter::default()
        };
        if random.one_in(5) {
            let operator = *random.pick(&Operator::ALL);
            let kind = *random.pick(Kind::of(operator));
            filter
                .conditions
                .push(self.condition(random, operator, kind));
        }
        match random.below(26) {
            0 => {
                filter.thread_id = Some(ThreadId::from_stored(
                    (*random.pick(&["t1", "T1"])).to_owned(),
                ))
            }
            1 => filter.source = Some(Source::Agent),
            2 => filter.tags = Some(Tags::from_normalised(vec!["x".into(), "z%".into()])),
            3 => {
                filter.content_type =
                    Some(*random.pick(&[ContentType::Text, ContentType::Multimodal]))
            }
            4 => filter.created_from = Some(Timestamp(10)),
            5 => filter.created_to = Some(Timestamp(20)),
            6 => {
                (filter.created_from, filter.created_to) =
                    (Some(Timestamp(10)), Some(Timestamp(20)))
            }
            7 => {
                filter.within =
                    ThreadSet::from_shown(&[(*random.pick(&["t1", "t*", "T*", "x"])).to_owned()])
            }
            8 => filter.within = ThreadSet::from_shown(&["t1".to_owned(), "T*".to_owned()]),
            _ => {}
        }
        filter
    }
}

/// Parses a path that is known to be valid.
fn path(text: &str) -> MetadataPath {
    MetadataPath::parse(text).expect("a valid path")
}

/// An entry with defaults for everything but id and metadata.
fn plain(id: i64, metadata: JsonObject) -> StoredEntry {
    StoredEntry {
        id,
        thread_id: "t1".into(),
        source: Source::User,
        content_type: ContentType::Text,
        text: "text".into(),
        summary: String::new(),
        metadata: ObjectText::from(&metadata),
        tags: Vec::new(),
        created_at: Timestamp(1_000 * id),
        updated_at: Timestamp(1_000 * id),
        version: 1,
        images: None,
        damage: None,
    }
}
