//! Artifacts: ids, rules for content and title, and the effect of a change. Both databases apply
//! changes through this module inside their transactions, so that the result is the same on both.

use std::fmt;

use uuid::Uuid;

use crate::entry::shorten;
use crate::{Error, JsonObject, Metadata, Reason, Result, Violations};

/// The id of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArtifactId(Uuid);

impl ArtifactId {
    /// The id of this artifact in the search indexes. It is negative, so that it never equals an entry's id, and
    /// consists of 62 random bits of the UUID, so that no counter is needed.
    #[must_use]
    pub const fn document(&self) -> i64 {
        let random = self.0.as_u128() as u64 & (u64::MAX >> 2);
        -1 - random as i64
    }

    /// The error sentence for a malformed id.
    pub const FORMAT: &str = "Invalid artifact ID format. Must be a valid UUID.";

    /// An id from a UUID.
    #[must_use]
    pub const fn new(id: Uuid) -> Self {
        Self(id)
    }

    /// Parses a UUID in any of its usual forms.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` on `artifact_id`.
    pub fn parse(given: &str) -> Result<Self> {
        // The longest form is a URN of 45 characters.
        let given = given.trim();
        (given.len() <= 45)
            .then(|| Uuid::parse_str(given).ok())
            .flatten()
            .map(Self)
            .ok_or_else(|| Error::invalid("artifact_id", Self::FORMAT))
    }
}

/// Lower case with hyphens.
impl fmt::Display for ArtifactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// Longest content of an artifact, in characters.
pub const MAX_ARTIFACT_CHARS: usize = 100_000;
/// Longest content between the edits of an update, in characters.
const MAX_CHARS_BETWEEN_EDITS: usize = 2 * MAX_ARTIFACT_CHARS;
/// Longest title of an artifact, in characters.
pub const MAX_TITLE_CHARS: usize = 200;
/// Longest path of an artifact, in characters.
pub const MAX_PATH_CHARS: usize = 1_024;

/// A validated artifact, ready to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewArtifact {
    /// The path, if it has one.
    pub path: Option<ArtifactPath>,
    /// The title, if one was given.
    pub title: Option<String>,
    /// The content.
    pub content: String,
    /// The metadata.
    pub metadata: Metadata,
}

/// A change to an artifact, validated as far as possible without the artifact.
#[derive(Debug, Clone, PartialEq)]
pub struct ArtifactUpdate {
    /// The artifact.
    pub id: ArtifactId,
    /// The change of the path.
    pub path: Option<PathChange>,
    /// The change to the title.
    pub title: Option<TitleChange>,
    /// The change to the content.
    pub content: Option<ContentChange>,
    /// New metadata.
    pub metadata: Option<Metadata>,
    /// The update is refused if the artifact is at another version.
    pub expected_version: Option<i64>,
}

/// The path of an artifact: 1 to 1 024 characters, not blank. It is unique among the artifacts of an owner. Only moving
/// and deleting by path treat `/` specially: `/a/b` lies below `/a`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactPath(String);

impl ArtifactPath {
    /// Validates a path, or the beginning of one.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for `field`.
    pub fn new(given: String, field: &str) -> Result<Self> {
        let problem = if given.trim().is_empty() {
            format!("`{field}` is blank")
        } else if given.contains('\0') {
            format!("`{field}` contains the character U+0000, which cannot be stored")
        } else if given.chars().nth(MAX_PATH_CHARS).is_some() {
            let chars = given.chars().count();
            format!("`{field}` has {chars} characters; the maximum is {MAX_PATH_CHARS}")
        } else {
            return Ok(Self(given));
        };
        Err(Error::invalid(field, problem))
    }

    /// As [`Self::new`], but adds what is wrong to the violations of a request.
    #[must_use]
    pub fn parse(given: String, field: &str, violations: &mut Violations) -> Option<Self> {
        Self::new(given, field)
            .map_err(|error| violations.extend(error))
            .ok()
    }

    /// A path that was stored.
    #[must_use]
    pub const fn from_stored(path: String) -> Self {
        Self(path)
    }

    /// The prefix that all paths below this one share: this path, ending in `/`.
    #[must_use]
    pub fn directory(&self) -> String {
        format!("{}/", self.0.strip_suffix('/').unwrap_or(&self.0))
    }

    /// The path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path.
    #[must_use]
    pub fn into_string(self) -> String {
        self.0
    }
}

/// How an update changes the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathChange {
    /// The artifact gets this path.
    Set(ArtifactPath),
    /// The artifact has no path afterwards.
    Remove,
}

impl PathChange {
    /// Validates a path. An empty one removes the path.
    #[must_use]
    pub fn parse(given: String, violations: &mut Violations) -> Option<Self> {
        if given.is_empty() {
            return Some(Self::Remove);
        }
        ArtifactPath::parse(given, "path", violations).map(Self::Set)
    }

    /// The path afterwards.
    #[must_use]
    pub fn path(&self) -> Option<&ArtifactPath> {
        match self {
            Self::Set(path) => Some(path),
            Self::Remove => None,
        }
    }
}

/// How an update changes the title.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TitleChange {
    /// The title is set to this and no longer follows the content.
    Given(String),
    /// The title follows the content again.
    Generated,
}

impl TitleChange {
    /// Validates a title. A blank one means the generated title.
    #[must_use]
    pub fn parse(given: &str, violations: &mut Violations) -> Self {
        let title = given.trim();
        if title.contains('\0') {
            violations.push(
                "title",
                "Title contains the character U+0000, which cannot be stored",
            );
        } else if title.chars().nth(MAX_TITLE_CHARS).is_some() {
            violations.push(
                "title",
                format!("Title exceeds maximum length of {MAX_TITLE_CHARS} characters"),
            );
        }
        if title.is_empty() {
            Self::Generated
        } else {
            Self::Given(title.to_owned())
        }
    }
}

/// How an update changes the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentChange {
    /// The whole content is replaced.
    Replace(String),
    /// The edits are applied in order.
    Edits(Vec<Edit>),
}

/// A change of one place in the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// `old`, which must occur exactly once, becomes `new`.
    Replace {
        /// The text to replace; not empty.
        old: String,
        /// The replacement.
        new: String,
    },
    /// `text` is inserted as separate lines.
    Insert {
        /// The line after which the text is inserted; 0 inserts before the first.
        after_line: usize,
        /// The text to insert.
        text: String,
    },
}

impl Edit {
    /// Maximum number of edits in one update.
    pub const MAX: usize = 100;

    /// The content after this edit. `field` names the edit in errors.
    fn apply(&self, content: &str, field: &str) -> Result<String> {
        match self {
            Self::Replace { old, new } => {
                let refused = |what| {
                    Err(invalid_input(Error::invalid(
                        format!("{field}.old_str"),
                        format!("`{field}.old_str` {what}"),
                    )))
                };
                let Some(at) = content.find(old.as_str()) else {
                    return refused("does not occur in the content");
                };
                // Search again from the next character, so that overlapping occurrences count too.
                let next = at + content[at..].chars().next().map_or(0, char::len_utf8);
                if content[next..].contains(old.as_str()) {
                    return refused("occurs more than once; give more of the text around it");
                }
                Ok([&content[..at], new, &content[at + old.len()..]].concat())
            }
            Self::Insert { after_line, text } => {
                let mut at = 0;
                let mut lines = 0;
                for line in content.split_inclusive('\n').take(*after_line) {
                    at += line.len();
                    lines += 1;
                }
                if lines < *after_line {
                    let what = format!(
                        "`{field}.insert_line` is {after_line}; the content has {lines} lines"
                    );
                    return Err(invalid_input(Error::invalid(
                        format!("{field}.insert_line"),
                        what,
                    )));
                }
                let (before, after) = content.split_at(at);
                let open = if before.is_empty() || before.ends_with('\n') {
                    ""
                } else {
                    "\n"
                };
                let close = if after.is_empty() || text.ends_with('\n') {
                    ""
                } else {
                    "\n"
                };
                Ok([before, open, text, close, after].concat())
            }
        }
    }
}

/// The state of an artifact at one version.
#[derive(Debug, Clone, PartialEq)]
pub struct ArtifactState {
    /// The title.
    pub title: String,
    /// Whether a caller set the title. A generated title follows the content.
    pub title_given: bool,
    /// The content.
    pub content: String,
    /// The metadata.
    pub metadata: JsonObject,
}

impl ArtifactState {
    /// The state of version 1.
    #[must_use]
    pub fn first(new: NewArtifact) -> Self {
        let NewArtifact {
            path: _,
            title,
            content,
            metadata,
        } = new;
        let title_given = title.is_some();
        let title = title.unwrap_or_else(|| generated_title(&content));
        Self {
            title,
            title_given,
            content,
            metadata: metadata.into_object(),
        }
    }

    /// This state after an update.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if an edit does not match the content, or if the result is too long or
    /// empty.
    pub fn updated(&self, update: &ArtifactUpdate) -> Result<Self> {
        let ArtifactUpdate {
            id: _,
            path: _,
            title,
            content,
            metadata,
            expected_version: _,
        } = update;
        let content = match content {
            None => self.content.clone(),
            Some(ContentChange::Replace(content)) => content.clone(),
            Some(ContentChange::Edits(edits)) => self.edited(edits)?,
        };
        let (title, title_given) = match title {
            Some(TitleChange::Given(title)) => (title.clone(), true),
            Some(TitleChange::Generated) => (generated_title(&content), false),
            None if self.title_given => (self.title.clone(), true),
            None => (generated_title(&content), false),
        };
        let metadata = metadata.as_ref().map_or_else(
            || self.metadata.clone(),
            |metadata| metadata.as_object().clone(),
        );
        Ok(Self {
            title,
            title_given,
            content,
            metadata,
        })
    }

    fn edited(&self, edits: &[Edit]) -> Result<String> {
        let mut content = self.content.clone();
        for (i, edit) in edits.iter().enumerate() {
            let field = format!("edits[{i}]");
            content = edit.apply(&content, &field)?;
            // Only the result has to be a valid content. But edits must not grow the text without limit before they
            // shrink it again.
            let is_last = i + 1 == edits.len();
            if !is_last && content.chars().nth(MAX_CHARS_BETWEEN_EDITS).is_some() {
                let rule = format!(
                    "After `{field}` the content exceeds {MAX_CHARS_BETWEEN_EDITS} characters, the maximum between edits"
                );
                return Err(invalid_input(Error::invalid(field, rule)));
            }
        }
        let mut violations = Violations::default();
        check_content(&content, &mut violations);
        violations.finish(content).map_err(invalid_input)
    }

    /// Which of `title`, `content` and `metadata` differ from an earlier state.
    #[must_use]
    pub fn changes_from(&self, before: &Self) -> Vec<String> {
        [
            (self.title != before.title, "title"),
            (self.content != before.content, "content"),
            (self.metadata != before.metadata, "metadata"),
        ]
        .into_iter()
        .filter(|(differs, _)| *differs)
        .map(|(_, name)| name.to_owned())
        .collect()
    }
}

/// Validates an artifact's content.
pub fn check_content(content: &str, violations: &mut Violations) {
    if content.trim().is_empty() {
        violations.push("content", "Content cannot be empty");
    } else if content.contains('\0') {
        violations.push(
            "content",
            "Content contains the character U+0000, which cannot be stored",
        );
    } else if content.chars().nth(MAX_ARTIFACT_CHARS).is_some() {
        violations.push(
            "content",
            format!("Content exceeds maximum length of {MAX_ARTIFACT_CHARS} characters"),
        );
    }
}

/// Rewords the error of an invalid artifact request as documented; other errors are unchanged.
#[must_use]
pub fn invalid_input(mut error: Error) -> Error {
    if error.reason == Reason::InvalidArgument {
        error.message = format!("Invalid input: {}", error.message);
    }
    error
}

/// The first `# ` line, else the first `## ` line, else the first line that is not blank; cut to
/// 200 characters.
fn generated_title(content: &str) -> String {
    let heading = |mark: &str| {
        content
            .lines()
            .filter_map(|line| line.trim_start().strip_prefix(mark))
            .map(str::trim)
            .find(|title| !title.is_empty())
    };
    let first = || content.lines().map(str::trim).find(|line| !line.is_empty());
    let title = heading("# ")
        .or_else(|| heading("## "))
        .or_else(first)
        .unwrap_or_default();
    title
        .chars()
        .take(MAX_TITLE_CHARS)
        .collect::<String>()
        .trim_end()
        .to_owned()
}

impl Error {
    /// `ARTIFACT_NOT_FOUND`: it does not exist, or belongs to another owner.
    #[must_use]
    pub fn artifact_not_found(id: &ArtifactId) -> Self {
        Self::new(
            Reason::ArtifactNotFound,
            format!("Artifact {id} not found or access denied"),
        )
    }

    /// `ARTIFACT_NOT_FOUND` for a path.
    #[must_use]
    pub fn no_artifact_at(path: &str) -> Self {
        Self::new(
            Reason::ArtifactNotFound,
            format!("No artifact has the path `{}`", shorten(path)),
        )
    }

    /// `PATH_TAKEN`. `path` is `None` when the database reported the conflict.
    #[must_use]
    pub fn path_taken(path: Option<&str>) -> Self {
        let path = path.map_or_else(
            || "this path".to_owned(),
            |path| format!("the path `{}`", shorten(path)),
        );
        Self::new(
            Reason::PathTaken,
            format!(
                "Another artifact has {path}; choose another one, or rename or delete that artifact"
            ),
        )
    }

    /// `ARTIFACT_VERSION_NOT_FOUND`.
    #[must_use]
    pub fn artifact_version_not_found(id: &ArtifactId, version: i64) -> Self {
        Self::new(
            Reason::ArtifactVersionNotFound,
            format!("Version {version} not found for artifact {id}"),
        )
    }

    /// `ARTIFACT_VERSION_NOT_FOUND` for a restore.
    #[must_use]
    pub fn artifact_version_not_restorable(id: &ArtifactId, version: i64) -> Self {
        Self::new(
            Reason::ArtifactVersionNotFound,
            format!("Cannot restore version {version} for artifact {id}"),
        )
    }

    /// `VERSION_MISMATCH`: the artifact is not at the version that the caller expected.
    #[must_use]
    pub fn artifact_version_mismatch(id: &ArtifactId, expected: i64, actual: i64) -> Self {
        Self::new(
            Reason::VersionMismatch,
            format!(
                "Artifact {id} is at version {actual}, not {expected}: it changed since you read it; fetch it and retry with the new version"
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_taken_from_the_first_heading_or_line() {
        for (content, title) in [
            ("intro\n## Two\n# One\n# Other", "One"),
            ("intro\n## Two\n## Three", "Two"),
            ("\n \n  first line  \nsecond", "first line"),
            ("#\n# \n#no heading\n### three", "#"),
            ("  # Indented ", "Indented"),
            ("text\r\n# Windows\r\n", "Windows"),
        ] {
            assert_eq!(generated_title(content), title, "{content:?}");
        }
        assert_eq!(generated_title(&"ä".repeat(300)), "ä".repeat(200));
    }

    fn state(content: &str) -> ArtifactState {
        ArtifactState::first(NewArtifact {
            path: None,
            title: None,
            content: content.to_owned(),
            metadata: Metadata::default(),
        })
    }

    fn edit(content: &str, edits: Vec<Edit>) -> Result<String> {
        let id = ArtifactId::new(Uuid::nil());
        let content_change = Some(ContentChange::Edits(edits));
        state(content)
            .updated(&ArtifactUpdate {
                id,
                path: None,
                title: None,
                content: content_change,
                metadata: None,
                expected_version: None,
            })
            .map(|state| state.content)
    }

    fn replace(old: &str, new: &str) -> Edit {
        Edit::Replace {
            old: old.to_owned(),
            new: new.to_owned(),
        }
    }

    fn insert(after_line: usize, text: &str) -> Edit {
        Edit::Insert {
            after_line,
            text: text.to_owned(),
        }
    }

    #[test]
    fn edits_change_one_place_each_in_order() {
        assert_eq!(
            edit("a b c", vec![replace("b", "x"), replace("x c", "y")]).unwrap(),
            "a y"
        );
        assert_eq!(
            edit(
                "one\ntwo",
                vec![insert(0, "zero"), insert(2, "mid\n"), insert(4, "end")]
            )
            .unwrap(),
            "zero\none\nmid\ntwo\nend"
        );
    }

    #[test]
    fn an_edit_that_fits_nowhere_or_twice_is_refused() {
        let refused = |content, edits| edit(content, edits).unwrap_err().message;
        assert_eq!(
            refused("abc", vec![replace("x", "y")]),
            "Invalid input: `edits[0].old_str` does not occur in the content"
        );
        assert!(
            refused("aaa", vec![replace("aa", "y")]).contains("occurs more than once"),
            "overlaps count"
        );
        assert_eq!(
            refused("a\nb", vec![insert(3, "y")]),
            "Invalid input: `edits[0].insert_line` is 3; the content has 2 lines"
        );
        assert_eq!(
            refused("abc", vec![replace("abc", " ")]),
            "Invalid input: Content cannot be empty"
        );
        let grow = vec![replace("x", &"x y".repeat(50_000))];
        assert_eq!(
            refused("x", grow),
            "Invalid input: Content exceeds maximum length of 100000 characters"
        );
    }

    #[test]
    fn only_the_result_of_all_edits_must_be_a_valid_content() {
        assert_eq!(
            edit("abc", vec![replace("abc", ""), insert(0, "n")]).unwrap(),
            "n"
        );
        let longest = format!("a{}", "x".repeat(MAX_ARTIFACT_CHARS - 1));
        assert_eq!(
            edit(&longest, vec![replace("a", "bc"), replace("b", "")]).unwrap(),
            longest.replace('a', "c")
        );
        let shrink = || replace("a", "");
        let grow = |chars: usize| replace("a", &format!("a{}", "x".repeat(chars)));
        assert_eq!(
            edit(&longest, vec![grow(1), shrink()]).unwrap(),
            "x".repeat(MAX_ARTIFACT_CHARS)
        );
        assert_eq!(
            edit(&longest, vec![grow(MAX_ARTIFACT_CHARS + 1), shrink()])
                .unwrap_err()
                .message,
            "Invalid input: After `edits[0]` the content exceeds 200000 characters, the maximum between edits"
        );
    }

    #[test]
    fn a_generated_title_follows_the_content_and_a_given_one_stays() {
        let id = ArtifactId::new(Uuid::nil());
        let update = |title: Option<&str>, content: Option<&str>| ArtifactUpdate {
            id,
            path: None,
            title: title.map(|title| TitleChange::parse(title, &mut Violations::default())),
            content: content.map(|content| ContentChange::Replace(content.to_owned())),
            metadata: None,
            expected_version: None,
        };
        let first = state("# A");
        let second = first.updated(&update(None, Some("# B"))).unwrap();
        assert_eq!(
            (second.title.as_str(), second.changes_from(&first)),
            ("B", vec!["title".to_owned(), "content".to_owned()])
        );
        let third = second.updated(&update(Some("Mine"), None)).unwrap();
        let fourth = third.updated(&update(None, Some("# C"))).unwrap();
        assert_eq!(
            (fourth.title.as_str(), fourth.changes_from(&third)),
            ("Mine", vec!["content".to_owned()])
        );
        assert_eq!(fourth.updated(&update(Some(" "), None)).unwrap().title, "C");
    }

    #[test]
    fn an_id_is_a_uuid_in_any_form() {
        let id = "123e4567-e89b-12d3-a456-426614174000";
        for form in [
            id,
            "123E4567E89B12D3A456426614174000",
            " {123e4567-e89b-12d3-a456-426614174000} ",
        ] {
            assert_eq!(ArtifactId::parse(form).unwrap().to_string(), id);
        }
        for other in ["", "1", "not-a-uuid", &"1".repeat(1000)] {
            assert_eq!(
                ArtifactId::parse(other).unwrap_err().message,
                ArtifactId::FORMAT
            );
        }
    }
}
