//! Finds dependencies of a crate that its source never names. The compiler's own lint checks each target separately, so
//! it also reports dependencies that only some of a crate's tests use.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// The dependencies of the crate in this folder that none of its files names. The files include the build script, tests
/// and examples.
///
/// # Errors
/// A file cannot be read.
pub fn unused_dependencies(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = BTreeSet::new();
    crates_named_in(folder, &mut names)?;
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml"))?;
    let mut in_dependencies = false;
    let mut unused = Vec::new();
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            in_dependencies = section.trim_end_matches(']').ends_with("dependencies");
            continue;
        }
        let dependency = line.split(['.', '=', ' ']).next().unwrap_or_default();
        let is_named = || names.contains(&dependency.replace('-', "_"));
        if in_dependencies && !dependency.is_empty() && !dependency.starts_with('#') && !is_named()
        {
            unused.push(dependency.to_owned());
        }
    }
    Ok(unused)
}

/// Adds every name in the Rust files below a folder that may be the name of a crate, except for names in comment lines.
fn crates_named_in(folder: &Path, names: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            crates_named_in(&path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path)?;
            let code = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            for line in code {
                add_first_names(line, names);
            }
        }
    }
    Ok(())
}

/// Adds the names that begin a path or follow `use`. A variable, a module inside of a path, or a word in a text may
/// have the name of a crate, and does not count.
fn add_first_names(line: &str, names: &mut BTreeSet<String>) {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let (mut rest, mut previous) = (line, "");
    while let Some(start) = rest.find(is_part) {
        let (gap, from) = rest.split_at(start);
        let end = from.find(|c: char| !is_part(c)).unwrap_or(from.len());
        let (word, after) = from.split_at(end);
        let begins_path = after.starts_with("::") && !gap.ends_with("::");
        if (begins_path || previous == "use") && !names.contains(word) {
            names.insert(word.to_owned());
        }
        (rest, previous) = (after, word);
    }
}
