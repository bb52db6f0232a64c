//! Ranges of folded strings, in byte order, that contain all matches of a comparison. They are used to search an index
//! of a field's folded strings.

use context_model::{Comparison, Scalar, end_of_prefix, fold};

/// The strings from `from` (inclusive) to `end` (exclusive).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextRange {
    /// The first string of the range.
    pub from: String,
    /// The first string after the range. `None` when the range has no end.
    pub end: Option<String>,
}

impl TextRange {
    /// All strings.
    #[must_use]
    pub fn all() -> Self {
        Self::of_prefix("")
    }

    /// The strings that begin with `prefix`.
    #[must_use]
    pub fn of_prefix(prefix: &str) -> Self {
        Self {
            from: prefix.to_owned(),
            end: end_of_prefix(prefix),
        }
    }

    /// The range that contains all strings that satisfy the comparison, each folded and cut after `chars` characters.
    /// `None` for a comparison without a range of strings.
    #[must_use]
    pub fn of(comparison: &Comparison, chars: usize) -> Option<Self> {
        let first_chars = |text: &str| text.chars().take(chars).collect::<String>();
        match comparison {
            Comparison::Gt(Scalar::Text(bound)) | Comparison::Gte(Scalar::Text(bound)) => {
                Some(Self {
                    from: first_chars(caseless_prefix(bound)),
                    end: None,
                })
            }
            Comparison::Lt(Scalar::Text(bound)) | Comparison::Lte(Scalar::Text(bound)) => {
                Some(Self {
                    from: String::new(),
                    end: end_of_prefix(&first_chars(caseless_prefix(bound))),
                })
            }
            Comparison::StartsWith {
                text,
                case_sensitive,
            } => {
                // The lower case of a capital sigma depends on what follows it. The prefix alone can therefore only be
                // folded up to the first one.
                let prefix = if *case_sensitive {
                    fold(text.split('Σ').next().unwrap_or_default())
                } else {
                    text.clone()
                };
                Some(Self::of_prefix(&first_chars(&prefix)))
            }
            Comparison::Eq { .. }
            | Comparison::Ne { .. }
            | Comparison::Gt(_)
            | Comparison::Gte(_)
            | Comparison::Lt(_)
            | Comparison::Lte(_)
            | Comparison::In { .. }
            | Comparison::NotIn { .. }
            | Comparison::Exists
            | Comparison::NotExists
            | Comparison::Contains { .. }
            | Comparison::EndsWith { .. }
            | Comparison::IsNull
            | Comparison::IsNotNull
            | Comparison::ArrayContains { .. } => None,
        }
    }
}

/// The part of a bound before its first byte that is `A` (0x41) or greater, such as the date of an ISO date-time.
///
/// A folded string compares with this part as the unfolded string does: folding changes only characters from `A` on,
/// and they stay above digits and punctuation.
fn caseless_prefix(text: &str) -> &str {
    let end = text
        .bytes()
        .position(|byte| byte >= b'A')
        .unwrap_or(text.len());
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Scalar {
        Scalar::Text(text.to_owned())
    }

    fn range(from: &str, end: Option<&str>) -> Option<TextRange> {
        Some(TextRange {
            from: from.to_owned(),
            end: end.map(str::to_owned),
        })
    }

    #[test]
    fn bounds_count_up_to_their_first_letter() {
        let date = text("2026-11-23T01:00:00Z");
        assert_eq!(
            TextRange::of(&Comparison::Gte(date.clone()), 100),
            range("2026-11-23", None)
        );
        assert_eq!(
            TextRange::of(&Comparison::Lt(date.clone()), 100),
            range("", Some("2026-11-24"))
        );
        assert_eq!(
            TextRange::of(&Comparison::Lt(date), 4),
            range("", Some("2027"))
        );
        assert_eq!(
            TextRange::of(&Comparison::Lte(text("Zoe")), 100),
            range("", None)
        );
        assert_eq!(TextRange::of(&Comparison::Gt(Scalar::Int(1)), 100), None);
    }

    #[test]
    fn a_prefix_is_folded_up_to_a_capital_sigma() {
        let starts = |text: &str, case_sensitive| Comparison::StartsWith {
            text: text.to_owned(),
            case_sensitive,
        };
        assert_eq!(
            TextRange::of(&starts("ΔΣa", true), 100),
            range("δ", Some("ε"))
        );
        assert_eq!(
            TextRange::of(&starts("abc", false), 2),
            range("ab", Some("ac"))
        );
    }
}
