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
    words_of(folder, &mut names)?;
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

/// Adds every word in the Rust files below a folder, except for words in comment lines.
fn words_of(folder: &Path, words: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            words_of(&path, words)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path)?;
            let code = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            for word in code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'))
            {
                if !words.contains(word) {
                    words.insert(word.to_owned());
                }
            }
        }
    }
    Ok(())
}
