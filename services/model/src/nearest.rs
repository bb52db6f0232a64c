//! Finds the known name that a misspelt name was probably meant to be.

/// The candidate closest to `name`, when one is close enough to suggest.
///
/// A candidate is close if one contains the other (`thread` for `thread_id`; not for names of one or two bytes), or if
/// the edit distance is at most a third of the longer name. Upper case in `name` is read as lower case, and `-` as
/// `_`. Candidates must be in lower case. A name of more than 64 bytes is close to none.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.is_empty() || name.len() > 64 {
        return None;
    }
    let name = name.to_lowercase().replace('-', "_");
    candidates
        .into_iter()
        .filter_map(|candidate| {
            let distance = strsim::levenshtein(&name, candidate);
            let close = distance * 3 <= name.len().max(candidate.len());
            let part = name.len() > 2 && (candidate.contains(&name) || name.contains(candidate));
            (close || part).then_some((distance, candidate))
        })
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    const KNOWN: [&str; 5] = ["thread_id", "source", "text", "metadata", "tags"];

    #[test]
    fn a_typo_a_dash_and_a_part_of_the_name_find_it() {
        assert_eq!(nearest("tread_id", KNOWN), Some("thread_id"));
        assert_eq!(nearest("Thread-Id", KNOWN), Some("thread_id"));
        assert_eq!(nearest("thread", KNOWN), Some("thread_id"));
        assert_eq!(nearest("metdata", KNOWN), Some("metadata"));
    }

    #[test]
    fn a_stranger_finds_nothing() {
        assert_eq!(nearest("banana", KNOWN), None);
        assert_eq!(nearest("", KNOWN), None);
        assert_eq!(nearest(&"thread_id".repeat(8), KNOWN), None);
    }
}
