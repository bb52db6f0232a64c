//! The acknowledgements of one writer, and what must therefore be stored.

use std::collections::BTreeMap;

use context_model::Entry;

use crate::content::Content;

/// An entry as it was acknowledged, or as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Acknowledged {
    /// The content.
    pub content: Content,
    /// The version.
    pub version: i64,
}

/// A request with an unknown outcome.
#[derive(Debug, Clone)]
pub enum Attempt {
    /// Storing these entries. With `true`, all or none.
    Store(Vec<Content>, bool),
    /// Updating entries with these contents. With `true`, all or none.
    Update(Vec<(i64, Content)>, bool),
    /// Deleting these entries, all or none.
    Delete(Vec<i64>),
}

/// The entries of one writer, and its request in flight.
#[derive(Debug)]
pub struct Ledger {
    /// Number of the writer. The texts of its entries begin with `w<writer>n`.
    pub writer: usize,
    /// Acknowledged entries, by id.
    pub entries: BTreeMap<i64, Acknowledged>,
    /// The request in flight.
    pub attempt: Option<Attempt>,
    /// Counter for unique texts.
    pub serial: u64,
    /// Number of acknowledgements so far.
    pub acknowledged: usize,
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub const fn new(writer: usize) -> Self {
        Self {
            writer,
            entries: BTreeMap::new(),
            attempt: None,
            serial: 0,
            acknowledged: 0,
        }
    }

    /// Whether this writer wrote an entry with this text.
    #[must_use]
    pub fn wrote(&self, text: &str) -> bool {
        text.strip_prefix('w')
            .and_then(|rest| rest.split_once('n'))
            .is_some_and(|(writer, _)| writer.parse() == Ok(self.writer))
    }

    /// Compares the stored entries with the acknowledged ones, and determines the outcome of the request in flight.
    ///
    /// # Errors
    /// One sentence for each acknowledged entry that is missing or different, each deleted entry that is back, each
    /// entry that was never sent, and each atomic batch that was applied in part.
    pub fn settle(&mut self, stored: &BTreeMap<i64, Entry>) -> Result<(), Vec<String>> {
        let mut stored: BTreeMap<i64, Acknowledged> = stored
            .values()
            .filter(|entry| self.wrote(&entry.text_content))
            .map(|entry| {
                (
                    entry.id,
                    Acknowledged {
                        version: entry.version,
                        content: entry.clone().into(),
                    },
                )
            })
            .collect();
        let mut wrong = Vec::new();
        match self.attempt.take() {
            None => {}
            Some(Attempt::Store(contents, atomic)) => {
                self.settle_store(&stored, contents, atomic, &mut wrong)
            }
            Some(Attempt::Update(updates, atomic)) => {
                self.settle_update(&stored, updates, atomic, &mut wrong)
            }
            Some(Attempt::Delete(ids)) => {
                let gone = ids.iter().filter(|id| !stored.contains_key(id)).count();
                if gone == ids.len() {
                    self.entries.retain(|id, _| !ids.contains(id));
                } else if gone > 0 {
                    wrong.push(format!(
                        "deleting {ids:?} was done in part: {gone} of {} are gone",
                        ids.len()
                    ));
                }
            }
        }
        for (id, expected) in &self.entries {
            match stored.remove(id) {
                None => wrong.push(format!(
                    "acknowledged entry {id} (`{}`, version {}) is missing",
                    expected.content.word(),
                    expected.version
                )),
                Some(found) if found != *expected => wrong.push(format!(
                    "entry {id} differs: {}",
                    difference(expected, &found)
                )),
                Some(_) => {}
            }
        }
        for (id, found) in stored {
            wrong.push(format!(
                "entry {id} (`{}`, version {}) should not be there",
                found.content.word(),
                found.version
            ));
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    fn settle_store(
        &mut self,
        stored: &BTreeMap<i64, Acknowledged>,
        contents: Vec<Content>,
        atomic: bool,
        wrong: &mut Vec<String>,
    ) {
        let total = contents.len();
        let mut found = Vec::new();
        for content in contents {
            let same = stored.iter().find(|(id, entry)| {
                !self.entries.contains_key(id) && entry.content.text == content.text
            });
            found.extend(same.map(|(id, _)| {
                (
                    *id,
                    Acknowledged {
                        content,
                        version: 1,
                    },
                )
            }));
        }
        if atomic && !found.is_empty() && found.len() < total {
            wrong.push(format!(
                "an atomic batch of {total} was stored in part: {:?}",
                found.iter().map(|(id, _)| id).collect::<Vec<_>>()
            ));
        }
        self.entries.extend(found);
    }

    fn settle_update(
        &mut self,
        stored: &BTreeMap<i64, Acknowledged>,
        updates: Vec<(i64, Content)>,
        atomic: bool,
        wrong: &mut Vec<String>,
    ) {
        let total = updates.len();
        let mut done = 0;
        for (id, content) in updates {
            if let Some(acknowledged) = self.entries.get_mut(&id)
                && stored
                    .get(&id)
                    .is_some_and(|found| found.version == acknowledged.version + 1)
            {
                *acknowledged = Acknowledged {
                    content,
                    version: acknowledged.version + 1,
                };
                done += 1;
            }
        }
        if atomic && done > 0 && done < total {
            wrong.push(format!(
                "an atomic batch of {total} updates was applied in part: {done} updates"
            ));
        }
    }
}

/// The first difference between two entries, in short form: texts and images can be long.
fn difference(expected: &Acknowledged, found: &Acknowledged) -> String {
    let Acknowledged {
        content: a,
        version,
    } = expected;
    let Acknowledged {
        content: b,
        version: found_version,
    } = found;
    if version != found_version {
        return format!(
            "version {found_version} instead of {version} (`{}`, `{}`)",
            b.word(),
            a.word()
        );
    }
    if a.text != b.text {
        return format!(
            "text `{}` ({} bytes) instead of `{}` ({} bytes)",
            b.word(),
            b.text.len(),
            a.word(),
            a.text.len()
        );
    }
    if a.images != b.images {
        return format!("images {:?} instead of {:?}", b.images, a.images);
    }
    format!(
        "{:?} instead of {:?}",
        (&b.thread_id, b.source, &b.tags, &b.metadata),
        (&a.thread_id, a.source, &a.tags, &a.metadata)
    )
}

#[cfg(test)]
mod tests {
    use context_model::{ContentType, ObjectText, Timestamp};

    use super::*;

    fn content(serial: u64) -> Content {
        Content::new(1, serial, 0, "t")
    }

    fn entry(id: i64, serial: u64, version: i64) -> Entry {
        let content = content(serial);
        Entry {
            id,
            thread_id: content.thread_id,
            source: content.source,
            content_type: ContentType::Text,
            text_content: content.text,
            summary: String::new(),
            metadata: ObjectText::from(&content.metadata),
            tags: content.tags,
            created_at: Timestamp(1),
            updated_at: Timestamp(1),
            version,
            images: Some(content.images),
        }
    }

    /// What a ledger with the entries 1 and 2, of these serials, reports about these stored entries.
    fn report(attempt: Option<Attempt>, stored: &[(i64, u64, i64)]) -> Vec<String> {
        let mut ledger = Ledger::new(1);
        for (id, serial) in [(1, 1), (2, 2)] {
            let content = content(serial);
            ledger.entries.insert(
                id,
                Acknowledged {
                    content,
                    version: 1,
                },
            );
        }
        ledger.attempt = attempt;
        let mut entries: BTreeMap<i64, Entry> = stored
            .iter()
            .map(|(id, serial, version)| (*id, entry(*id, *serial, *version)))
            .collect();
        // An entry of another writer.
        let other = Content::new(11, 1, 0, "t").text;
        entries.insert(
            100,
            Entry {
                text_content: other,
                ..entry(100, 1, 1)
            },
        );
        ledger.settle(&entries).err().unwrap_or_default()
    }

    /// If a ledger does not report each of these, the tests with faults prove nothing.
    #[test]
    fn a_ledger_reports_what_is_lost_wrong_back_or_done_in_part() {
        let storing = |atomic| Some(Attempt::Store(vec![content(3), content(4)], atomic));
        let updating = |atomic| {
            Some(Attempt::Update(
                vec![(1, content(5)), (2, content(6))],
                atomic,
            ))
        };
        let deleting = || Some(Attempt::Delete(vec![1, 2]));
        let (one, two) = ((1, 1, 1), (2, 2, 1));
        for (attempt, stored) in [
            (None, vec![one, two]),
            (storing(true), vec![one, two]),
            (storing(true), vec![one, two, (7, 3, 1), (8, 4, 1)]),
            (storing(false), vec![one, two, (7, 3, 1)]),
            (updating(true), vec![one, two]),
            (updating(true), vec![(1, 5, 2), (2, 6, 2)]),
            (updating(false), vec![(1, 5, 2), two]),
            (deleting(), vec![one, two]),
            (deleting(), vec![]),
        ] {
            assert_eq!(report(attempt, &stored), [""; 0], "{stored:?}");
        }
        for (attempt, stored, words) in [
            (None, vec![one], "acknowledged entry 2"),
            (None, vec![one, (2, 9, 1)], "entry 2 differs: text"),
            (None, vec![one, (2, 2, 2)], "version 2 instead of 1"),
            (None, vec![one, two, (7, 3, 1)], "should not be there"),
            (storing(true), vec![one, two, (7, 3, 1)], "stored in part"),
            (
                storing(false),
                vec![one, two, (7, 3, 1), (8, 3, 1)],
                "should not be there",
            ),
            (
                storing(true),
                vec![one, (7, 3, 1), (8, 4, 1)],
                "acknowledged entry 2",
            ),
            (updating(true), vec![(1, 5, 2), two], "applied in part"),
            (updating(false), vec![(1, 9, 2), two], "entry 1 differs"),
            (updating(true), vec![(1, 5, 1), two], "entry 1 differs"),
            (deleting(), vec![two], "done in part"),
        ] {
            let wrong = report(attempt, &stored);
            assert!(
                wrong.iter().any(|line| line.contains(words)),
                "{stored:?}: {words:?} is not in {wrong:?}"
            );
        }
    }
}
