//! Paths of artifacts: what a move or a delete by path reaches, and what is in the way of a move.

use context_model::{ArtifactId, ArtifactPath, Error};

use crate::StoreError;

/// Maximum number of artifacts that one move or delete by path reaches.
pub const MAX_AT_PATH: usize = 1_000;

/// An artifact at or below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The artifact.
    pub id: ArtifactId,
    /// Its path.
    pub path: String,
    /// The number of its current version.
    pub version: i64,
}

/// An artifact at or below a path, from its columns.
///
/// # Errors
/// `INTERNAL` when they are not those of an artifact with a path.
pub fn placed(id: &str, path: Option<String>, version: i64) -> Result<Placed, StoreError> {
    let id = ArtifactId::parse(id)?;
    let path = path.unwrap_or_default();
    Ok(Placed { id, path, version })
}

/// The range of the paths below a path: from the first, up to the second, which is excluded.
#[must_use]
pub fn below(path: &ArtifactPath) -> (String, String) {
    let first = path.directory();
    // '0' follows '/'.
    let end = format!("{}0", &first[..first.len() - 1]);
    (first, end)
}

/// The path itself, and the paths that it lies below.
#[must_use]
pub fn at_and_above(path: &ArtifactPath) -> Vec<String> {
    let path = path.as_str();
    // `/a/b` lies below `/a`, and below `/a/`, which is another path.
    let ends = path.match_indices('/').flat_map(|(at, _)| [at, at + 1]);
    let above = ends.filter(|end| (1..path.len()).contains(end));
    let mut paths: Vec<String> = above.map(|end| path[..end].to_owned()).collect();
    paths.dedup();
    paths.push(path.to_owned());
    paths
}

/// Checks that one move or delete may reach these artifacts. A store reads at most one more than [`MAX_AT_PATH`].
///
/// # Errors
/// `INVALID_ARGUMENT` for too many.
pub fn not_too_many(found: Vec<Placed>) -> Result<Vec<Placed>, StoreError> {
    if found.len() > MAX_AT_PATH {
        let sentence = format!(
            "more than {MAX_AT_PATH} artifacts are at or below `path`; choose a path below it"
        );
        return Err(Error::invalid("path", sentence).into());
    }
    Ok(found)
}

/// The artifacts that a move reaches, each with the path that it gets. A move must not make a path both a file and a
/// directory: `in_the_way` is the path of an artifact that is not moved, and that is at `to`, below it or above it.
///
/// # Errors
/// `ARTIFACT_NOT_FOUND` without any; `PATH_TAKEN` when one is in the way; `INVALID_ARGUMENT` for too many, or for a
/// path that gets too long.
pub fn moves(
    found: Vec<Placed>,
    in_the_way: Option<&str>,
    from: &ArtifactPath,
    to: &ArtifactPath,
) -> Result<Vec<(Placed, ArtifactPath)>, StoreError> {
    if found.is_empty() {
        return Err(Error::no_artifact_at(from.as_str()).into());
    }
    let found = not_too_many(found)?;
    if let Some(other) = in_the_way {
        return Err(not_free(to, other).into());
    }
    let (old, new) = (from.directory(), to.directory());
    let moved = found.into_iter().map(|artifact| {
        let path = match artifact.path.strip_prefix(&old) {
            Some(rest) if artifact.path != from.as_str() => format!("{new}{rest}"),
            _ => to.as_str().to_owned(),
        };
        Ok((artifact, ArtifactPath::new(path, "to")?))
    });
    moved.collect()
}

fn not_free(to: &ArtifactPath, other: &str) -> Error {
    let why = if other == to.as_str() {
        "`to` is taken"
    } else if other.starts_with(&to.directory()) {
        "`to` is a directory"
    } else {
        "`to` lies in a file"
    };
    let mut error = Error::path_taken(Some(other));
    error.message = format!("{why}. {}", error.message);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_lies_below_each_of_its_beginnings() {
        let above = |path: &str| at_and_above(&ArtifactPath::from_stored(path.to_owned()));
        assert_eq!(above("/a/b"), ["/", "/a", "/a/", "/a/b"]);
        assert_eq!(above("a//b"), ["a", "a/", "a//", "a//b"]);
        assert_eq!(above("/a/"), ["/", "/a", "/a/"]);
        assert_eq!(above("é"), ["é"]);
        for path in ["/a/b/c", "a//b", "/é/", "//"] {
            let above = above(path);
            for above in &above[..above.len() - 1] {
                let (first, end) = below(&ArtifactPath::from_stored(above.clone()));
                assert!(
                    (first.as_str()..end.as_str()).contains(&path),
                    "{path} below {above}"
                );
            }
        }
    }
}
