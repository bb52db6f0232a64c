//! The change of one configuration file.

use std::path::Path;

use super::file;
use super::part::Part;

/// A planned change of one file.
#[derive(Debug)]
pub struct Change<'c> {
    file: &'c Path,
    before: String,
    /// `None` if the file is removed.
    after: Option<String>,
    copy: CopyAction,
    /// The sentences that report the change.
    lines: Vec<String>,
}

/// The sentence that reports that an entry came back.
const PUT_BACK: &str = "the entry that was there before is in place again";

/// What to do with the saved copy: the file as it was before this program changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopyAction {
    Save,
    Leave,
    Remove,
}

/// Plans to add the parts to the file. A copy of it will be saved, unless it has some of them and was saved before, or
/// the saved copy is the only one of another entry.
///
/// # Errors
/// A sentence if the file cannot be read or parsed.
pub fn add<'c>(file: &'c Path, parts: &[Part]) -> Result<Change<'c>, String> {
    let before = file::read(file)?;
    let mut found = Vec::new();
    let mut lines = Vec::new();
    for part in parts {
        let existing = part.found(&before)?;
        lines.push(part.report_added(file, existing.as_ref() != Some(part)));
        found.extend(existing);
    }
    let has_parts = !found.is_empty();
    let saved = file::read_saved(file)?;
    let is_kept = |saved: &String| has_parts || has_another(parts, saved);
    let copy = if saved.as_ref().is_some_and(is_kept) {
        CopyAction::Leave
    } else {
        CopyAction::Save
    };
    // If the file differs from the saved copy only by earlier values of our parts, start from the copy: then nothing of
    // the earlier values remains.
    let base = match saved {
        Some(saved) if has_parts && becomes(&saved, &found, &before) => saved,
        _ => before.clone(),
    };
    let after = parts.iter().try_fold(base, |text, part| part.add(&text))?;
    Ok(Change {
        file,
        before,
        after: Some(after),
        copy,
        lines,
    })
}

/// Plans to remove the parts from the file. If nothing else in the file changed since its copy was saved, the file
/// becomes equal to the copy, byte for byte. Otherwise only an entry that a part had replaced is taken from the copy. A
/// file of which no copy was saved is removed if nothing else is in it. The copy is removed too, unless it has an entry
/// that was not put back.
///
/// # Errors
/// As for [`add`].
pub fn remove<'c>(file: &'c Path, parts: &[Part]) -> Result<Change<'c>, String> {
    let before = file::read(file)?;
    let mut after = before.clone();
    // The file as this program left it: without what the client noted about our parts.
    let mut ours = before.clone();
    let mut found = Vec::new();
    let mut lines = Vec::new();
    for part in parts {
        let existing = part.found(&before)?;
        lines.push(part.report_removed(file, existing.is_some()));
        found.extend(existing);
        after = part.remove(&after)?;
        if matches!(part, Part::Trust { .. }) {
            ours = part.remove(&ours)?;
        }
    }
    let has_parts = !found.is_empty();
    let mut copy = if has_parts {
        CopyAction::Remove
    } else {
        CopyAction::Leave
    };
    let saved = file::read_saved(file)?.filter(|_| has_parts);
    let after = match saved {
        None if has_parts && is_blank(&after) => None,
        None => Some(after),
        Some(saved) => {
            let (replaced, others): (Vec<&Part>, Vec<&Part>) =
                parts.iter().partition(|part| part.replaces_another(&saved));
            // A copy that has a part of this program was made of a file without a copy. It is not restored.
            let has_own = others.iter().any(|part| part.found(&saved) != Ok(None));
            if !has_own && becomes(&saved, &found, &ours) {
                lines.extend(replaced.first().map(|_| PUT_BACK.to_owned()));
                Some(saved)
            } else {
                for part in replaced {
                    if let (Ok(Some(_)), Ok(Some(earlier))) =
                        (part.found(&before), part.found(&saved))
                    {
                        after = earlier.add(&after)?;
                        lines.push(PUT_BACK.to_owned());
                    } else {
                        copy = CopyAction::Leave;
                        lines.push(format!(
                            "the file as it was before, with another entry, is still {}",
                            file::saved(file).display()
                        ));
                    }
                }
                let is_removed = has_own && is_blank(&after);
                (!is_removed).then_some(after)
            }
        }
    };
    Ok(Change {
        file,
        before,
        after,
        copy,
        lines,
    })
}

/// Whether the saved copy has something else where one of the parts goes. Then it is the only copy of that.
fn has_another(parts: &[Part], saved: &str) -> bool {
    parts.iter().any(|part| part.replaces_another(saved))
}

/// Whether `saved` becomes `other` when the parts are added.
fn becomes(saved: &str, parts: &[Part], other: &str) -> bool {
    let added = parts
        .iter()
        .try_fold(saved.to_owned(), |text, part| part.add(&text));
    added.is_ok_and(|text| text == other)
}

/// Whether a file has nothing in it.
fn is_blank(text: &str) -> bool {
    let text: String = text.split_whitespace().collect();
    text.is_empty() || text == "{}"
}

impl Change<'_> {
    /// Whether the file will differ.
    pub fn changes_something(&self) -> bool {
        self.after.as_ref() != Some(&self.before)
    }

    /// How the file changes, as a unified diff.
    pub fn difference(&self) -> String {
        let after = self.after.as_deref().unwrap_or_default();
        let name = self.file.display().to_string();
        similar::TextDiff::from_lines(self.before.as_str(), after)
            .unified_diff()
            .header(&name, &name)
            .to_string()
    }

    /// Makes the change and returns what was done.
    ///
    /// # Errors
    /// A sentence if the file cannot be written or removed.
    pub fn make(mut self) -> Result<String, String> {
        if self.changes_something() {
            if self.copy == CopyAction::Save
                && let Some(saved) = file::save(self.file)?
            {
                let line = format!("the previous file is {}", saved.display());
                self.lines.push(line);
            }
            match &self.after {
                Some(after) => file::write(self.file, after)?,
                None => {
                    // The copy goes first: with it, the directory would not be empty and would stay.
                    if self.copy == CopyAction::Remove {
                        file::forget(self.file);
                    }
                    file::remove(self.file)?;
                }
            }
        }
        if self.copy == CopyAction::Remove {
            file::forget(self.file);
        }
        Ok(self.lines.join("\n"))
    }
}
