//! The crates of a workspace.

use std::io;
use std::path::{Path, PathBuf};

/// The root file of a crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrateRoot {
    /// The crate's folder in the workspace, followed by ` (binary)` if the root file is `main.rs`.
    pub name: String,
    /// `lib.rs` or `main.rs`.
    pub file: PathBuf,
}

/// The folders of the workspace's packages, as the `members` of its `Cargo.toml` list them.
///
/// # Errors
/// `Cargo.toml` cannot be read.
pub fn workspace_members(workspace: &Path) -> io::Result<Vec<String>> {
    let manifest = std::fs::read_to_string(workspace.join("Cargo.toml"))?;
    let members = manifest
        .split_once("members = [")
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("", |(members, _)| members);
    let quoted = members.split('"').skip(1).step_by(2);
    Ok(quoted.map(str::to_owned).collect())
}

/// The crates of the workspace in this folder.
///
/// # Errors
/// `Cargo.toml` cannot be read.
pub fn workspace_crates(workspace: &Path) -> io::Result<Vec<CrateRoot>> {
    let mut crates = Vec::new();
    for member in workspace_members(workspace)? {
        for (file, kind) in [("lib.rs", ""), ("main.rs", " (binary)")] {
            let file = workspace.join(&member).join("src").join(file);
            if file.exists() {
                let name = format!("{member}{kind}");
                crates.push(CrateRoot { name, file });
            }
        }
    }
    Ok(crates)
}
