//! The change of one configuration file.

use std::path::Path;

use super::file;
use super::part::Part;

/// A change that was not made yet.
#[derive(Debug)]
pub struct Change<'c> {
    file: &'c Path,
    before: String,
    /// `None` if the file is removed.
    after: Option<String>,
    copy: Copy,
    /// What is said about it.
    lines: Vec<String>,
}

/// What happens to the copy of the file as it was before this program changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copy {
    Save,
    Leave,
    Remove,
}

/// Adds the parts to the file. A file that had none of them is saved.
///
/// # Errors
/// A sentence if the file cannot be read or parsed.
pub fn add<'c>(file: &'c Path, parts: &[Part]) -> Result<Change<'c>, String> {
    let before = file::read(file)?;
    let mut found = Vec::new();
    let mut lines = Vec::new();
    for part in parts {
        let there = part.found(&before)?;
        lines.push(part.said_of_adding(file, there.as_ref() != Some(part)));
        found.extend(there);
    }
    let is_there = !found.is_empty();
    // Other parts in the place of ours are written as if ours had never been there.
    let base = match file::read_saved(file)? {
        Some(saved) if is_there && becomes(&saved, &found, &before) => saved,
        _ => before.clone(),
    };
    let after = parts.iter().try_fold(base, |text, part| part.add(&text))?;
    Ok(Change {
        file,
        before,
        after: Some(after),
        copy: if is_there { Copy::Leave } else { Copy::Save },
        lines,
    })
}

/// Removes the parts from the file. If nothing else in it changed since it was saved, it becomes the saved one again, byte
/// for byte. A file that this program created is removed if nothing else is in it.
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
        let there = part.found(&before)?;
        lines.push(part.said_of_removing(file, there.is_some()));
        found.extend(there);
        after = part.remove(&after)?;
        if matches!(part, Part::Trust { .. }) {
            ours = part.remove(&ours)?;
        }
    }
    let is_there = !found.is_empty();
    let after = match file::read_saved(file)? {
        None if is_there && is_blank(&after) => None,
        Some(saved) if becomes(&saved, &found, &ours) => Some(saved),
        _ => Some(after),
    };
    Ok(Change {
        file,
        before,
        after,
        copy: if is_there { Copy::Remove } else { Copy::Leave },
        lines,
    })
}

/// Whether a file becomes another one when the parts are added, of which it has none.
fn becomes(saved: &str, parts: &[Part], other: &str) -> bool {
    let mut text = saved.to_owned();
    for part in parts {
        let (Ok(None), Ok(next)) = (part.found(saved), part.add(&text)) else {
            return false;
        };
        text = next;
    }
    text == other
}

/// Whether a file has nothing in it.
fn is_blank(text: &str) -> bool {
    let text: String = text.split_whitespace().collect();
    text.is_empty() || text == "{}"
}

impl Change<'_> {
    /// Whether the file differs afterwards.
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
            if self.copy == Copy::Save
                && let Some(saved) = file::save(self.file)?
            {
                let line = format!("the previous file is {}", saved.display());
                self.lines.push(line);
            }
            match &self.after {
                Some(after) => file::write(self.file, after)?,
                None => file::remove(self.file)?,
            }
        }
        if self.copy == Copy::Remove {
            file::forget(self.file);
        }
        Ok(self.lines.join("\n"))
    }
}
