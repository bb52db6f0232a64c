//! Configuration files: read, saved, replaced and removed.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Maximum number of links that lead to a file, as on Linux (path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The text of the file; empty if there is none.
///
/// # Errors
/// A sentence if the file cannot be read, or is not UTF-8.
pub fn read(file: &Path) -> Result<String, String> {
    Ok(read_existing(file)?.unwrap_or_default())
}

fn read_existing(file: &Path) -> Result<Option<String>, String> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{} cannot be read: {error}", file.display())),
    }
}

/// If the file is a symbolic link, such as into a dotfiles repository, the linked file is changed. It may be missing.
fn linked(file: &Path) -> PathBuf {
    if let Ok(file) = file.canonicalize() {
        return file;
    }
    let mut file = file.to_owned();
    // A circle of links ends too; reading the file has failed then.
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&file) else {
            break;
        };
        file = file.parent().map(|dir| dir.join(&target)).unwrap_or(target);
    }
    file
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    file.with_file_name(name)
}

fn draft(file: &Path) -> PathBuf {
    beside(file, ".context-gateway-draft")
}

/// Where the file is saved as it was before this program changed it.
pub fn saved(file: &Path) -> PathBuf {
    beside(&linked(file), ".before-context-gateway")
}

/// The file as it was before this program changed it. `None` if there is no saved copy: this program has not changed
/// the file, or there was no file to save.
///
/// # Errors
/// As for [`read`].
pub fn read_saved(file: &Path) -> Result<Option<String>, String> {
    read_existing(&saved(file))
}

/// Saves the file next to itself, and returns the path of that copy. Without a file it does nothing.
///
/// # Errors
/// A sentence if the copy cannot be written.
pub fn save(file: &Path) -> Result<Option<PathBuf>, String> {
    let file = linked(file);
    if !file.exists() {
        return Ok(None);
    }
    let copy = saved(&file);
    let draft = draft(&file);
    // On a full disk the draft may be incomplete. An earlier copy is replaced only by a whole one.
    let written = fs::copy(&file, &draft).and_then(|_| fs::rename(&draft, &copy));
    written.map_err(|error| {
        let _ = fs::remove_file(&draft);
        format!("{} cannot be written: {error}", copy.display())
    })?;
    Ok(Some(copy))
}

/// Replaces the file atomically and keeps its permissions.
///
/// # Errors
/// A sentence if the file cannot be written.
pub fn write(file: &Path, text: &str) -> Result<(), String> {
    let file = linked(file);
    let draft = draft(&file);
    let attempt = || -> io::Result<()> {
        if let Some(dir) = file.parent() {
            fs::create_dir_all(dir)?;
        }
        let mut out = fs::File::create(&draft)?;
        if let Ok(found) = fs::metadata(&file) {
            out.set_permissions(found.permissions())?;
        }
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        fs::rename(&draft, &file)
    };
    attempt().map_err(|error| {
        let _ = fs::remove_file(&draft);
        format!("{} cannot be written: {error}", file.display())
    })
}

/// Removes the saved copy.
pub fn forget(file: &Path) {
    // It is only a copy, so a failure is no reason to fail.
    let _ = fs::remove_file(saved(file));
}

/// Removes the file, and the directories around it below HOME that are empty then.
///
/// # Errors
/// A sentence if the file cannot be removed.
pub fn remove(file: &Path) -> Result<(), String> {
    let file = linked(file);
    fs::remove_file(&file)
        .map_err(|error| format!("{} cannot be removed: {error}", file.display()))?;
    let home = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    // `file` has no links in it any more, so HOME must have none either.
    let home = home.canonicalize().unwrap_or(home);
    for directory in file.ancestors().skip(1) {
        let is_below_home = directory != home && directory.starts_with(&home);
        if home.as_os_str().is_empty() || !is_below_home || fs::remove_dir(directory).is_err() {
            break;
        }
    }
    Ok(())
}
