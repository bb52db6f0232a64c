//! Sets of threads to which credentials can be restricted.

use crate::{ThreadId, Violations};

/// A set of threads, given by names and by prefixes of names. No pattern covers another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadSet(Vec<ThreadPattern>);

/// One pattern of a set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadPattern {
    /// The thread with this name.
    Name(String),
    /// The threads whose names begin with this prefix; not empty.
    Prefix(String),
}

impl ThreadPattern {
    fn contains(&self, thread: &str) -> bool {
        match self {
            Self::Name(name) => name == thread,
            Self::Prefix(prefix) => thread.starts_with(prefix.as_str()),
        }
    }

    /// Whether this pattern contains all threads of the other one.
    fn covers(&self, other: &Self) -> bool {
        match other {
            Self::Name(name) => self.contains(name),
            Self::Prefix(prefix) => {
                matches!(self, Self::Prefix(own) if prefix.starts_with(own.as_str()))
            }
        }
    }
}

impl ThreadSet {
    /// Maximum number of patterns in a set.
    pub const MAX_PATTERNS: usize = 100;

    /// Parses a list of names, and of prefixes that end with `*`. If one breaks a rule, adds
    /// violations under `field`. Returns `None` if there are any violations, also earlier ones.
    pub fn parse(given: &[String], field: &str, violations: &mut Violations) -> Option<Self> {
        if given.is_empty() || given.len() > Self::MAX_PATTERNS {
            violations.push(
                field,
                format!(
                    "`{field}` has {} items; it must have 1 to {}",
                    given.len(),
                    Self::MAX_PATTERNS
                ),
            );
            return None;
        }
        let mut patterns = Vec::with_capacity(given.len());
        for (i, text) in given.iter().enumerate() {
            let field = format!("{field}[{i}]");
            match text.strip_suffix('*') {
                Some(prefix) if prefix.trim().is_empty() => {
                    violations.push(&field, format!("`{field}` is only `*`, which restricts nothing; put the start of the names before it"));
                }
                // Unlike those of a name, blanks at the end count.
                Some(prefix)
                    if prefix
                        .trim_start()
                        .chars()
                        .nth(ThreadId::MAX_CHARS)
                        .is_some() =>
                {
                    violations.push(
                        &field,
                        format!(
                            "`{field}` has {} characters before the `*`; the maximum is {}",
                            prefix.trim_start().chars().count(),
                            ThreadId::MAX_CHARS
                        ),
                    );
                }
                // Names have no leading blanks, so prefixes have none either.
                Some(prefix) => {
                    let whole = ThreadId::parse(prefix, &field, violations);
                    patterns.extend(
                        whole.map(|_| ThreadPattern::Prefix(prefix.trim_start().to_owned())),
                    );
                }
                None => patterns.extend(
                    ThreadId::parse(text, &field, violations)
                        .map(|id| ThreadPattern::Name(id.into_string())),
                ),
            }
        }
        violations.is_empty().then(|| Self::of(patterns))
    }

    /// The set of these patterns, without those that another one covers.
    fn of(mut patterns: Vec<ThreadPattern>) -> Self {
        patterns.sort_unstable();
        patterns.dedup();
        let all = patterns.clone();
        patterns.retain(|pattern| {
            !all.iter()
                .any(|other| other != pattern && other.covers(pattern))
        });
        Self(patterns)
    }

    /// The set of this thread alone.
    #[must_use]
    pub fn only(thread: ThreadId) -> Self {
        Self(vec![ThreadPattern::Name(thread.into_string())])
    }

    /// Parses names, and prefixes followed by `*`, such as the output of [`shown`](Self::shown).
    /// `None` if one breaks a rule.
    #[must_use]
    pub fn from_shown(shown: &[String]) -> Option<Self> {
        Self::parse(shown, "threads", &mut Violations::default())
    }

    /// The names, and the prefixes followed by `*`.
    #[must_use]
    pub fn shown(&self) -> Vec<String> {
        let shown = |pattern: &ThreadPattern| match pattern {
            ThreadPattern::Name(name) => name.clone(),
            ThreadPattern::Prefix(prefix) => format!("{prefix}*"),
        };
        self.0.iter().map(shown).collect()
    }

    /// Its patterns, at least one. They do not overlap.
    #[must_use]
    pub fn patterns(&self) -> &[ThreadPattern] {
        &self.0
    }

    /// Whether the set contains this thread.
    #[must_use]
    pub fn contains(&self, thread: &str) -> bool {
        self.0.iter().any(|pattern| pattern.contains(thread))
    }
}

/// The smallest text, ordered by code point, that is greater than every text with this prefix;
/// `None` if there is none.
#[must_use]
pub fn end_of_prefix(prefix: &str) -> Option<String> {
    let mut end: Vec<char> = prefix.chars().collect();
    while let Some(last) = end.pop() {
        let next = match u32::from(last) + 1 {
            // Surrogates are not characters.
            0xD800 => 0xE000,
            next => next,
        };
        if let Some(next) = char::from_u32(next) {
            end.push(next);
            return Some(end.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(patterns: &[&str]) -> Option<ThreadSet> {
        ThreadSet::from_shown(&patterns.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn names_and_beginnings_select_threads() {
        let set = set(&["billing", "team a/*"]).unwrap();
        for (thread, inside) in [
            ("billing", true),
            ("billing 2", false),
            ("team a/", true),
            ("team a/x", true),
            ("team a", false),
            ("Billing", false),
        ] {
            assert_eq!(set.contains(thread), inside, "{thread}");
        }
    }

    #[test]
    fn what_is_covered_is_dropped_and_the_rest_is_shown_again() {
        let set = set(&["ab*", "abc*", "abx", "b", "b", " c"]).unwrap();
        assert_eq!(set.shown(), ["b", "c", "ab*"]);
        assert_eq!(ThreadSet::from_shown(&set.shown()), Some(set));
    }

    #[test]
    fn what_narrows_nothing_or_breaks_a_rule_is_no_set() {
        let many: Vec<String> = (0..101).map(|i| i.to_string()).collect();
        assert_eq!(ThreadSet::from_shown(&many), None);
        for bad in [
            &[][..],
            &["*"],
            &[" *"],
            &[""],
            &["a", " "],
            &["a\0"],
            &["a\0*"],
            &[&"x".repeat(257)],
            &[&format!("{}*", "x".repeat(257))],
            &[&format!("x{}*", " ".repeat(256))],
        ] {
            assert_eq!(set(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn the_end_of_a_prefix_lies_behind_all_that_begin_with_it() {
        for (prefix, end) in [
            ("a", Some("b")),
            ("az", Some("a{")),
            ("\u{D7FF}", Some("\u{E000}")),
            ("a\u{10FFFF}", Some("b")),
            ("\u{10FFFF}", None),
        ] {
            assert_eq!(end_of_prefix(prefix).as_deref(), end, "{prefix}");
        }
    }
}
