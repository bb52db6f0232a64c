//! Moving and deleting artifacts by path: how many artifacts one write may affect, which paths a move gives them, and
//! when a move is rejected.
//!
//! A path is a string. `/a` has the directory `/a/`, and the paths below `/a` are those that begin with `/a/`.

use context_model::{ArtifactId, ArtifactPath, Error, MAX_PATH_CHARS, Reason};

use crate::{StoreError, unreadable};

/// Maximum number of artifacts that one move or delete by path affects.
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

/// Parses the columns of an artifact at or below a path.
///
/// # Errors
/// `STORAGE_CORRUPT` when `id` is not an artifact id, or there is no path.
pub fn placed(id: &str, path: Option<String>, version: i64) -> Result<Placed, StoreError> {
    let id = ArtifactId::parse(id).map_err(|_| unreadable("artifact id", None))?;
    let path = path.ok_or_else(|| unreadable("artifact path", None))?;
    Ok(Placed { id, path, version })
}

/// The paths below a path, as a range of strings in byte order: from the first string (inclusive) to the second
/// (exclusive).
#[must_use]
pub fn below(path: &ArtifactPath) -> (String, String) {
    let first = path.directory();
    // '0' follows '/'.
    let end = format!("{}0", &first[..first.len() - 1]);
    (first, end)
}

/// The paths that this path lies below, and last the path itself.
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

/// Returns the artifacts that a move or delete affects, unless they are more than [`MAX_AT_PATH`]. It therefore
/// suffices that a store reads [`MAX_AT_PATH`] + 1 artifacts.
///
/// # Errors
/// `INVALID_ARGUMENT` for more artifacts.
pub fn not_too_many(found: Vec<Placed>) -> Result<Vec<Placed>, StoreError> {
    if found.len() > MAX_AT_PATH {
        let sentence = format!(
            "more than {MAX_AT_PATH} artifacts are at or below `path`; choose a path below it"
        );
        return Err(Error::invalid("path", sentence).into());
    }
    Ok(found)
}

/// The artifacts that a move affects (`found`), each with its new path. `in_the_way` is the path of an artifact that
/// stays where it is and that is at `to`, below it or above it. The move is then rejected, because it would make a path
/// both a file and a directory.
///
/// # Errors
/// `ARTIFACT_NOT_FOUND` when `found` is empty; `PATH_TAKEN` when an artifact is in the way, or when two artifacts would
/// get the same path; `INVALID_ARGUMENT` for more than [`MAX_AT_PATH`] artifacts, or for a new path that is too long.
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
        // If `from` ends in `/`, it is its own directory, so the artifact at `from` has the prefix too.
        let path = match artifact.path.strip_prefix(&old) {
            Some(rest) if artifact.path != from.as_str() => format!("{new}{rest}"),
            _ => to.as_str().to_owned(),
        };
        let chars = path.chars().count();
        if chars > MAX_PATH_CHARS {
            let sentence = format!(
                "a path below `to` would have {chars} characters; the maximum is {MAX_PATH_CHARS}"
            );
            return Err(Error::invalid("to", sentence).into());
        }
        Ok((artifact, ArtifactPath::new(path, "to")?))
    });
    let moves: Vec<(Placed, ArtifactPath)> = moved.collect::<Result<_, StoreError>>()?;
    // `/a` and `/a/` would both become `/b/`. Other paths stay different.
    if moves.iter().filter(|(_, path)| path == to).count() > 1 {
        let sentence =
            "two of the artifacts would get the path `to`; choose a path without `/` at its end";
        return Err(Error::new(Reason::PathTaken, sentence).into());
    }
    Ok(moves)
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
