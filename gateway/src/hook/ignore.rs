//! Rules that exclude projects and paths: `.contextignore` in the project, and the setting CONTEXT_HOOK_EXCLUDE.

use std::fs;
use std::path::Path;

use super::project::Project;

/// The name of the file in a project's root.
pub const FILE: &str = ".contextignore";

/// The rules for one project. A rule has the syntax of `.gitignore`, without `[…]` and `\`.
#[derive(Debug, Clone, Default)]
pub struct Ignored {
    rules: Vec<Rule>,
    is_directory_excluded: bool,
}

#[derive(Debug, Clone)]
struct Rule {
    segments: Vec<String>,
    is_anchored: bool,
    is_exception: bool,
}

impl Ignored {
    /// The rules of a project's `.contextignore`, and whether they or the setting exclude `directory`, in which the
    /// agent works. An item of the setting that begins with `/` or `~` is a directory; any other one is a project, with
    /// `*` for any characters but `/`.
    #[must_use]
    pub fn of(project: &Project, directory: &Path, setting: &[String]) -> Self {
        let text = fs::read_to_string(project.root.join(FILE)).unwrap_or_default();
        let rules: Vec<Rule> = text.lines().filter_map(Rule::parse).collect();
        let directory = directory
            .canonicalize()
            .unwrap_or_else(|_| directory.to_owned());
        let is_excluded = |item: &String| {
            let item = item.trim();
            if item.starts_with(['/', '~']) {
                let path = context_model::local::expand_home(item);
                let path = path.canonicalize().unwrap_or(path);
                directory.starts_with(path)
            } else {
                let rule = Rule::parse(&format!("/{item}"));
                !item.is_empty() && rule.is_some_and(|rule| rule.matches(&project.name))
            }
        };
        let mut ignored = Self {
            rules,
            is_directory_excluded: setting.iter().any(is_excluded),
        };
        let inside = directory
            .strip_prefix(&project.root)
            .map(|path| path.to_string_lossy().into_owned())
            .unwrap_or_default();
        ignored.is_directory_excluded |=
            ignored.excludes_everything() || ignored.excludes_path(&inside);
        ignored
    }

    /// Whether the directory in which the agent works is excluded, so that nothing is captured or recalled.
    #[must_use]
    pub const fn excludes_directory(&self) -> bool {
        self.is_directory_excluded
    }

    /// The first path in the text that a rule excludes. Such a text is not captured.
    #[must_use]
    pub fn path_in<'t>(&self, text: &'t str, root: &Path) -> Option<&'t str> {
        if self.rules.is_empty() {
            return None;
        }
        let root = root.to_string_lossy();
        let is_edge = |c: char| c.is_whitespace() || "\"'`()[]{}<>,;:=|".contains(c);
        text.split(is_edge)
            .map(|word| {
                word.trim_start_matches('@')
                    .trim_end_matches(['.', '?', '!'])
            })
            // A path has a `/` or a `.`: the rule `private/` does not exclude the word "private".
            .filter(|word| word.contains(['/', '.']))
            .find(|word| {
                let path = word.strip_prefix(&*root).unwrap_or(word);
                let path = path.trim_start_matches("./").trim_start_matches('/');
                !path.is_empty() && self.excludes_path(path)
            })
    }

    /// Whether a rule such as `*` or `/` excludes the whole project. False if any rule begins with `!`.
    fn excludes_everything(&self) -> bool {
        let everything = |rule: &Rule| {
            !rule.is_exception
                && matches!(rule.segments.as_slice(), [one] if one == "*" || one == "**")
        };
        self.rules.iter().any(everything) && !self.rules.iter().any(|rule| rule.is_exception)
    }

    fn excludes_path(&self, path: &str) -> bool {
        let last = self.rules.iter().rev().find(|rule| rule.matches(path));
        last.is_some_and(|rule| !rule.is_exception)
    }
}

impl Rule {
    fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let (is_exception, line) = match line.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        if matches!(line, "/" | "." | "./") {
            return Some(Self {
                segments: vec!["**".into()],
                is_anchored: true,
                is_exception,
            });
        }
        let body = line.trim_end_matches('/');
        let segments: Vec<String> = body
            .trim_start_matches('/')
            .split('/')
            .map(str::to_owned)
            .collect();
        Some(Self {
            is_anchored: body.contains('/'),
            segments,
            is_exception,
        })
    }

    /// Whether the rule names the path or a directory above it.
    fn matches(&self, path: &str) -> bool {
        let path: Vec<&str> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .collect();
        let starts = if self.is_anchored {
            0..1
        } else {
            0..path.len().max(1)
        };
        starts
            .into_iter()
            .any(|start| matches_segments(&self.segments, path.get(start..).unwrap_or_default()))
    }
}

fn matches_segments(rule: &[String], path: &[&str]) -> bool {
    match rule.split_first() {
        None => true,
        Some((first, rest)) if first == "**" => {
            (0..=path.len()).any(|skipped| matches_segments(rest, &path[skipped..]))
        }
        Some((first, rest)) => path.split_first().is_some_and(|(segment, others)| {
            glob(first.as_bytes(), segment.as_bytes()) && matches_segments(rest, others)
        }),
    }
}

/// `*` matches any characters and `?` one.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, t));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == b'?' || pattern[p] == text[t]) {
            p += 1;
            t += 1;
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            p = at + 1;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(dir: &Path, rules: &str) -> Project {
        fs::create_dir_all(dir.join(".git")).unwrap();
        fs::create_dir_all(dir.join("private/deep")).unwrap();
        fs::write(dir.join(FILE), rules).unwrap();
        Project::of(dir)
    }

    #[test]
    fn rules_exclude_directories_and_texts_that_name_a_path() {
        let dir = tempfile::tempdir().unwrap();
        let project = project(
            dir.path(),
            "# mine\n/private/\n*.pem\nconf/**/prod.toml\n!public.pem\n",
        );
        let of = |path: &str| Ignored::of(&project, &dir.path().join(path), &[]);
        assert!(of("private/deep").excludes_directory());
        let here = of("");
        assert!(!here.excludes_directory());
        for text in [
            "look at private/notes.md",
            "look at @private/notes.md, please",
            "keys/server.pem is wrong",
            "in `conf/a/b/prod.toml`?",
            &format!("open {}/private/x", project.root.display()),
        ] {
            assert!(here.path_in(text, &project.root).is_some(), "{text}");
        }
        for text in [
            "the private method",
            "public.pem is fine",
            "src/private.rs",
            "conf/dev.toml",
        ] {
            assert_eq!(here.path_in(text, &project.root), None, "{text}");
        }
    }

    #[test]
    fn a_star_and_the_setting_exclude_the_whole_project() {
        let dir = tempfile::tempdir().unwrap();
        let mut found = project(dir.path(), "*\n");
        assert!(Ignored::of(&found, dir.path(), &[]).excludes_directory());
        fs::remove_file(dir.path().join(FILE)).unwrap();
        found.name = "github.com/acme/app".into();
        let excluded = |item: &str| {
            Ignored::of(&found, &dir.path().join("private"), &[item.to_owned()])
                .excludes_directory()
        };
        assert!(
            excluded("github.com/acme/*")
                && excluded("github.com/acme/app")
                && excluded("github.com/acme")
        );
        assert!(
            !excluded("github.com/acme/ap") && !excluded("github.com/other/*") && !excluded("")
        );
        assert!(excluded(dir.path().to_str().unwrap()));
        assert!(!excluded(dir.path().join("other").to_str().unwrap()));
    }
}
