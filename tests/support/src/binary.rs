//! The paths of the workspace's binaries.

use std::path::{Path, PathBuf};

/// The path of a workspace binary: in `CONTEXT_TEST_BIN`, or else in the target directory of the running test or
/// program.
///
/// # Panics
/// When the binary was not built. The message has the command that builds it.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    let directories: Vec<PathBuf> = match std::env::var_os("CONTEXT_TEST_BIN") {
        Some(directory) => vec![PathBuf::from(directory)],
        // target/<profile>/<program>, and target/<profile>/deps/<test>
        None => program
            .ancestors()
            .skip(1)
            .take(2)
            .map(Path::to_path_buf)
            .collect(),
    };
    let found = directories
        .iter()
        .map(|directory| directory.join(name))
        .find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("{name} is not in {directories:?}; build it first: cargo build --workspace")
    })
}
