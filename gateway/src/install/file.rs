//! Configuration files: read, compared, and replaced.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

pub fn read(file: &Path) -> Result<String, String> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        outcome => outcome.map_err(|error| format!("{} cannot be read: {error}", file.display())),
    }
}

/// How the file would change, as a unified diff.
pub fn difference(file: &Path, before: &str, after: &str) -> String {
    let name = file.display().to_string();
    similar::TextDiff::from_lines(before, after)
        .unified_diff()
        .header(&name, &name)
        .to_string()
}

/// Replaces the file atomically, keeps its permissions, and saves the previous content next to it.
/// Returns a sentence about that copy.
pub fn write(file: &Path, before: &str, after: &str) -> Result<String, String> {
    // If the file is a symbolic link, such as into a dotfiles repository, the linked file is
    // changed.
    let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let beside = |suffix: &str| {
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(suffix);
        file.with_file_name(name)
    };
    let attempt = || -> io::Result<String> {
        if let Some(dir) = file.parent() {
            fs::create_dir_all(dir)?;
        }
        let saved = if before.is_empty() {
            String::new()
        } else {
            let backup = beside(".before-context-gateway");
            fs::copy(&file, &backup)?;
            format!(" (the previous file is {})", backup.display())
        };
        let draft = beside(".context-gateway-draft");
        let mut out = fs::File::create(&draft)?;
        if let Ok(found) = fs::metadata(&file) {
            out.set_permissions(found.permissions())?;
        }
        out.write_all(after.as_bytes())?;
        out.sync_all()?;
        fs::rename(&draft, &file)?;
        Ok(saved)
    };
    attempt().map_err(|error| format!("{} cannot be written: {error}", file.display()))
}
