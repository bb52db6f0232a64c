//! Rules that exclude projects and paths: `.contextignore` in the project and in the directories above it, and the
//! setting CONTEXT_HOOK_EXCLUDE.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::project::Project;

/// The name of the file in a project's root, or in a directory above it.
pub const FILE: &str = ".contextignore";
/// Characters that a path in a text does not have: quotes, brackets and punctuation.
const EDGES: &str = "\"'`()[]{}<>,;:=|";
/// Characters that a path may have, or that stand beside one: the `*` around bold text, the beginning of a fragment or
/// a query, and quotes, brackets, dashes and punctuation beyond ASCII.
const MAYBE_EDGES: &str = "*#?&!“”„‘’«»…–—，。：；、！？（）「」『』【】";

/// The rules for one project. A rule has the syntax of `.gitignore`, without named classes such as `[:digit:]`.
#[derive(Debug, Clone, Default)]
pub struct Ignored {
    /// The rules of each file. A path is excluded if those of one file exclude it: an exception has no effect on the
    /// rules of another file.
    files: Vec<Rules>,
    is_directory_excluded: bool,
    flaw: Option<String>,
}

/// The rules of one file.
#[derive(Debug, Clone, Default)]
struct Rules {
    rules: Vec<Rule>,
    /// The directory that has the file.
    base: PathBuf,
    /// The project's root, from that directory. It is empty if the root has the file.
    root: String,
    /// The directory in which the agent works, from that directory. It is empty for the directory itself.
    inside: String,
}

#[derive(Debug, Clone)]
struct Rule {
    segments: Vec<String>,
    is_anchored: bool,
    is_exception: bool,
    /// The names at the beginning of the rule, if a text is cut at one of their characters: `Private Notes`.
    cut_names: Option<String>,
}

impl Ignored {
    /// The rules of the `.contextignore` in a project's root and in each directory above it, and whether they or the
    /// setting exclude `directory`, in which the agent works. An item of the setting that begins with `/` or `~` is a
    /// directory, and may end with `/*`; any other one is a project, with `*` for any characters but `/`. If the rules
    /// cannot be read, the directory is excluded.
    #[must_use]
    pub fn of(project: &Project, directory: &Path, setting: &[String]) -> Self {
        let directory = directory
            .canonicalize()
            .unwrap_or_else(|_| directory.to_owned());
        let is_excluded = |item: &String| {
            let item = item.trim();
            if item.starts_with(['/', '~']) {
                let path = context_model::local::expand_home(item.trim_end_matches(['/', '*']));
                let path = path.canonicalize().unwrap_or(path);
                directory.starts_with(path)
            } else {
                let rule = Rule::parse(&format!("/{item}"));
                !item.is_empty() && rule.is_some_and(|rule| rule.matches(&project.name))
            }
        };
        let mut ignored = Self {
            is_directory_excluded: setting.iter().any(is_excluded),
            ..Self::default()
        };
        // A project may be inside a directory that an outer one excludes.
        for base in project.root.ancestors() {
            let from = |path: &Path| {
                let path = path.strip_prefix(base);
                path.map(|path| path.to_string_lossy().into_owned())
                    .unwrap_or_default()
            };
            match read(&base.join(FILE)) {
                Ok(rules) if rules.is_empty() => {}
                Ok(rules) => ignored.files.push(Rules {
                    rules,
                    base: base.to_owned(),
                    root: from(&project.root),
                    inside: from(&directory),
                }),
                Err(flaw) => ignored.flaw = ignored.flaw.or(Some(flaw)),
            }
        }
        ignored.is_directory_excluded |=
            ignored.flaw.is_some() || ignored.files.iter().any(Rules::exclude_directory);
        ignored
    }

    /// Whether the directory in which the agent works is excluded, so that nothing is captured or recalled.
    #[must_use]
    pub const fn excludes_directory(&self) -> bool {
        self.is_directory_excluded
    }

    /// Why the rules cannot be read. The directory is then excluded.
    #[must_use]
    pub fn flaw(&self) -> Option<&str> {
        self.flaw.as_deref()
    }

    /// The first path in the text that a rule excludes; the whole text if the text is cut at characters of that path.
    /// Such a text is not captured.
    #[must_use]
    pub fn path_in<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.files.iter().find_map(|rules| rules.path_in(text))
    }
}

impl Rules {
    /// Whether the directory in which the agent works is excluded. `private/*` excludes the content of a directory, and
    /// so the work in it.
    fn exclude_directory(&self) -> bool {
        self.exclude_everything()
            || !self.inside.is_empty() && self.exclude_path(&format!("{}/-", self.inside))
    }

    fn path_in<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.word_in(text).or_else(|| {
            // A shell and a URL write a space in other ways.
            let plain = text.replace('\\', "").replace("%20", " ");
            let is_named = |rule: &Rule| rule.has_cut_names(text) || rule.has_cut_names(&plain);
            self.rules.iter().any(is_named).then_some(text)
        })
    }

    /// The first word of the text that is a path which a rule excludes.
    fn word_in<'t>(&self, text: &'t str) -> Option<&'t str> {
        let base = self.base.to_string_lossy();
        let is_edge = |c: char| c.is_whitespace() || EDGES.contains(c);
        let parts = |word: &'t str| {
            let parts = word.split(may_be_edge);
            std::iter::once(word).chain(parts.filter(move |part| part.len() < word.len()))
        };
        // `_private/a.md_` is a path in italics, or has these names.
        let names = |word: &'t str| {
            let inner = word.trim_matches('_');
            std::iter::once(word).chain((inner.len() < word.len()).then_some(inner))
        };
        text.split(is_edge)
            .flat_map(parts)
            .map(|word| {
                word.trim_start_matches('@')
                    .trim_end_matches(['.', '?', '!'])
            })
            .flat_map(names)
            // A path has a `/` or a `.`: the rule `private/` does not exclude the word "private".
            .filter(|word| word.contains(['/', '.']))
            .find(|word| {
                // `~/app/a.md`, and `file:///home/me/app/a.md` after the colon.
                let path = context_model::local::expand_home(word.trim_start_matches("//"));
                let path = path.to_string_lossy();
                if let Some(path) = path.strip_prefix(&*base)
                    && (path.starts_with('/') || base.ends_with('/'))
                {
                    return self.exclude_path(path);
                }
                let path = path.trim_start_matches("./").trim_start_matches('/');
                // It is relative to the project's root, or to the directory in which the agent works.
                !path.is_empty()
                    && (self.exclude_path(&format!("{}/{path}", self.root))
                        || self.exclude_path(&format!("{}/{path}", self.inside)))
            })
    }

    /// Whether a rule such as `*`, `**/*` or `/` excludes everything. False if any rule begins with `!`.
    fn exclude_everything(&self) -> bool {
        let everything = |rule: &Rule| {
            !rule.is_exception
                && rule.segments.split_last().is_some_and(|(last, before)| {
                    (last == "*" || last == "**") && before.iter().all(|one| one == "**")
                })
        };
        self.rules.iter().any(everything) && !self.rules.iter().any(|rule| rule.is_exception)
    }

    /// Whether the path or a directory above it is excluded: the last rule that names it counts. As in git, an
    /// exception does not reach into an excluded directory.
    fn exclude_path(&self, path: &str) -> bool {
        let path = segments(path);
        (1..=path.len()).any(|end| {
            let mut rules = self.rules.iter().rev();
            let last = rules.find(|rule| rule.names(&path[..end]));
            last.is_some_and(|rule| !rule.is_exception)
        })
    }
}

/// The rules of a file; none if there is no file.
///
/// # Errors
/// A sentence if the file, or one of its rules, cannot be read.
fn read(file: &Path) -> Result<Vec<Rule>, String> {
    let bytes = match fs::read(file) {
        // A link to a file that does not exist is not found either.
        Err(error)
            if error.kind() == ErrorKind::NotFound && fs::symlink_metadata(file).is_err() =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(format!("{} cannot be read: {error}", file.display())),
        Ok(bytes) => bytes,
    };
    let text = String::from_utf8_lossy(&bytes);
    let mut rules = Vec::new();
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let Some(rule) = Rule::parse(line) else {
            continue;
        };
        let flaw = if line.contains(char::REPLACEMENT_CHARACTER) {
            "is not UTF-8"
        } else if line.contains("[:") {
            "has a named class such as [:digit:], which is not supported"
        } else {
            rules.push(rule);
            continue;
        };
        return Err(format!("line {} of {} {flaw}", index + 1, file.display()));
    }
    Ok(rules)
}

impl Rule {
    fn parse(line: &str) -> Option<Self> {
        let line = trimmed(line);
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
                cut_names: None,
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
            cut_names: cut_names(&segments).filter(|_| !is_exception),
            segments,
            is_exception,
        })
    }

    /// Whether the text has the names at whose characters it is cut, as a path. Exceptions do not count for them.
    fn has_cut_names(&self, text: &str) -> bool {
        let Some(names) = &self.cut_names else {
            return false;
        };
        text.match_indices(names.as_str()).any(|(at, found)| {
            let before = text[..at].chars().next_back();
            let after = text[at + found.len()..].chars().next();
            let is_part = [before, after]
                .into_iter()
                .flatten()
                .any(|c| c.is_alphanumeric() && !may_be_edge(c));
            !is_part && (found.contains(['/', '.']) || after == Some('/'))
        })
    }

    /// Whether the rule names the path or a directory above it.
    fn matches(&self, path: &str) -> bool {
        let path = segments(path);
        (1..=path.len()).any(|end| self.names(&path[..end]))
    }

    /// Whether the rule names this path itself.
    fn names(&self, path: &[&str]) -> bool {
        let start = match self.is_anchored {
            true => 0,
            false => path.len().saturating_sub(1),
        };
        matches_segments(&self.segments, &path[start..])
    }
}

/// Whether a path may have the character, or end before it. Chinese, Japanese, Korean, Thai and other scripts of Asia
/// have no space between a path and the word beside it.
fn may_be_edge(c: char) -> bool {
    MAYBE_EDGES.contains(c)
        || matches!(
            c,
            // Thai, Lao and Tibetan; Burmese; Khmer; signs of China, kana and ideographs; Hangul; ideographs.
            '\u{e00}'..='\u{fff}'
                | '\u{1000}'..='\u{109f}'
                | '\u{1780}'..='\u{17ff}'
                | '\u{3000}'..='\u{9fff}'
                | '\u{ac00}'..='\u{d7af}'
                | '\u{f900}'..='\u{faff}'
                | '\u{20000}'..='\u{3ffff}'
        )
}

/// The names at the beginning of a rule, without its wildcards, if a text is cut at one of their characters.
fn cut_names(segments: &[String]) -> Option<String> {
    let named = segments.iter().skip_while(|segment| *segment == "**");
    let names: Vec<String> = named.map_while(|segment| literal(segment)).collect();
    let names = names.join("/");
    let is_cut = |c: char| c.is_whitespace() || EDGES.contains(c) || may_be_edge(c);
    names.contains(is_cut).then_some(names)
}

/// The name that a segment matches. `None` if it has a wildcard or a class.
fn literal(segment: &str) -> Option<String> {
    let mut name = String::new();
    let mut chars = segment.chars();
    while let Some(c) = chars.next() {
        match c {
            '*' | '?' | '[' => return None,
            '\\' => name.extend(chars.next()),
            c => name.push(c),
        }
    }
    Some(name)
}

/// The names in a path. `..` removes the one before it.
fn segments(path: &str) -> Vec<&str> {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            name => segments.push(name),
        }
    }
    segments
}

/// The line without the white space around it. A space after `\` stays.
fn trimmed(line: &str) -> &str {
    let line = line.trim_start();
    let end = line.trim_end();
    let is_escaped = end.ends_with('\\') && !end.ends_with("\\\\");
    let is_escaped = is_escaped && line[end.len()..].starts_with(' ');
    &line[..end.len() + usize::from(is_escaped)]
}

fn matches_segments(rule: &[String], path: &[&str]) -> bool {
    match rule.split_first() {
        None => path.is_empty(),
        // `private/**` names everything in the directory, but not the directory.
        Some((first, [])) if first == "**" => !path.is_empty(),
        Some((first, rest)) if first == "**" => {
            (0..=path.len()).any(|skipped| matches_segments(rest, &path[skipped..]))
        }
        Some((first, rest)) => path.split_first().is_some_and(|(segment, others)| {
            glob(first, segment) && matches_segments(rest, others)
        }),
    }
}

/// `*` matches any characters, `?` one, `[…]` one of a class, and a character after `\` itself.
fn glob(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        if pattern.get(p) == Some(&'*') {
            star = Some((p, t));
            p += 1;
        } else if let Some(length) = match_one(&pattern[p..], text[t]) {
            p += length;
            t += 1;
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            p = at + 1;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// The length of the first part of the pattern, if it matches the character.
fn match_one(pattern: &[char], c: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['[', rest @ ..] => match class(rest, c) {
            Some((length, matches)) => matches.then_some(1 + length),
            // Without `]` it is no class.
            None => (c == '[').then_some(1),
        },
        ['\\', escaped, ..] => (*escaped == c).then_some(2),
        [first, ..] => (*first == c).then_some(1),
        [] => None,
    }
}

/// The length of a class after its `[`, and whether it has the character. `None` if it has no end.
fn class(pattern: &[char], c: char) -> Option<(usize, bool)> {
    let is_negated = matches!(pattern, ['!' | '^', ..]);
    let first = usize::from(is_negated);
    let (mut at, mut has) = (first, false);
    loop {
        match &pattern[at..] {
            [] => return None,
            // A `]` at the start is a member.
            [']', ..] if at > first => return Some((at + 1, has != is_negated)),
            [_, ..] => {
                let low = member(pattern, &mut at)?;
                let high = match &pattern[at..] {
                    ['-', next, ..] if *next != ']' => {
                        at += 1;
                        member(pattern, &mut at)?
                    }
                    _ => low,
                };
                has |= (low..=high).contains(&c);
            }
        }
    }
}

/// Reads the member of a class that begins at `at`, and moves `at` past it. After `\` any character is a member.
fn member(pattern: &[char], at: &mut usize) -> Option<char> {
    let is_escaped = pattern.get(*at) == Some(&'\\');
    let member = pattern.get(*at + usize::from(is_escaped)).copied();
    *at += 1 + usize::from(is_escaped);
    member
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
            "# mine\n/private/\n*.pem\nconf/**/prod.toml\n!public.pem\nreport（final）.md\n绝密/\n",
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
            "**private/notes.md** says",
            "“private/notes.md” says",
            "请看「private/notes.md」。",
            "看private/notes.md吧",
            "请打开private/notes.md，谢谢",
            "ดูprivate/notes.mdหน่อย",
            "private/notes.md를 보세요",
            "see _private/notes.md_ now",
            "看_private/notes.md_吧",
            "看绝密/计划.md吧",
            "the report（final）.md",
            &format!("open file://{}/private/x", project.root.display()),
            &format!("open {}/private/x", project.root.display()),
        ] {
            assert!(here.path_in(text).is_some(), "{text}");
        }
        for text in [
            "the private method",
            "public.pem is fine",
            "src/private.rs",
            "conf/dev.toml",
            "这是绝密的",
        ] {
            assert_eq!(here.path_in(text), None, "{text}");
        }
    }

    #[test]
    fn a_path_is_found_although_the_text_is_cut_at_its_characters_or_at_those_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let rules = "Private Notes/\n/tax/*\nreport (final).md\napp/(private)/*.tsx\n\\[slug\\]\n*.pem\n\
            **/my docs/\n!not this/\n";
        let project = project(dir.path(), rules);
        let here = Ignored::of(&project, dir.path(), &[]);
        for text in [
            "read Private Notes/keys.md",
            "in \"old/Private Notes/keys.md\"?",
            "the report (final).md is wrong",
            "look at app/(private)/page.tsx",
            "pages/[slug]/a.md",
            "read Private\\ Notes/keys.md",
            "the report\\ \\(final\\).md",
            "open file:///x/Private%20Notes/keys.md",
            "x/my docs/a",
            "server.pem#L3",
            "https://host.example/keys/server.pem?raw=1",
            "server.pem—it is wrong",
            "server.pem…",
        ] {
            assert!(here.path_in(text).is_some(), "{text}");
        }
        for text in [
            "my Private Notes are long",
            "My Private Notes. The rest",
            "UnPrivate Notes/keys.md",
            "a report (final)",
            "a (private) remark in app/page.tsx",
            "this slug/a",
            "not this/a.md",
        ] {
            assert_eq!(here.path_in(text), None, "{text}");
        }
    }

    #[test]
    fn a_path_may_be_relative_to_the_directory_in_which_the_agent_works() {
        let dir = tempfile::tempdir().unwrap();
        let project = project(dir.path(), "/private/deep/\n");
        for (directory, expected) in [("private", true), ("", false)] {
            let ignored = Ignored::of(&project, &dir.path().join(directory), &[]);
            assert!(!ignored.excludes_directory());
            let found = ignored.path_in("see ./deep/notes.md");
            assert_eq!(found.is_some(), expected, "{directory}");
            let found = ignored.path_in("see ../private/deep/notes.md");
            assert!(found.is_some(), "{directory}");
        }
    }

    #[test]
    fn a_path_may_be_relative_to_the_home_directory() {
        let rules = Rules {
            rules: vec![Rule::parse("/private/").unwrap()],
            base: context_model::local::expand_home("~/app"),
            ..Rules::default()
        };
        assert!(rules.path_in("see ~/app/private/a.md").is_some());
        assert_eq!(rules.path_in("see ~/app/other/a.md"), None);
    }

    #[test]
    fn an_exception_does_not_reach_into_an_excluded_directory() {
        let dir = tempfile::tempdir().unwrap();
        for (rules, path, expected) in [
            ("private/\n!*.md\n", "private/a.md", true),
            ("*.pem\n!keys/\n", "keys/a.pem", true),
            ("/*\n!/src/\n", "src/a/b.rs", false),
            ("/*\n!/src/\n", "docs/a.md", true),
            ("private/*\n!private/a.md\n", "private/a.md", false),
            ("private/**\n!private/a.md\n", "private/a.md", false),
            ("private/**\n!private/a.md\n", "private/b/c.md", true),
            ("private/deep\n", "private/deep/a/b", true),
            ("deep/\n", "private/deep/a/b", true),
            ("**/deep\n", "private/deep/a/b", true),
        ] {
            let project = project(dir.path(), rules);
            let here = Ignored::of(&project, dir.path(), &[]);
            let found = here.path_in(path).is_some();
            assert_eq!(found, expected, "{rules} {path}");
        }
        for rules in [
            "private/\n",
            "private/*\n",
            "private/**\n",
            "private/deep\n",
        ] {
            let project = project(dir.path(), rules);
            let deep = Ignored::of(&project, &dir.path().join("private/deep"), &[]);
            assert!(deep.excludes_directory(), "{rules}");
        }
    }

    #[test]
    fn a_star_and_the_setting_exclude_the_whole_project() {
        let dir = tempfile::tempdir().unwrap();
        let mut found = project(dir.path(), "**/*\n");
        assert!(Ignored::of(&found, dir.path(), &[]).excludes_directory());
        fs::write(dir.path().join(FILE), "*\n").unwrap();
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
        for end in ["", "/", "/*", "/**"] {
            assert!(excluded(&format!("{}{end}", dir.path().display())), "{end}");
        }
        assert!(!excluded(dir.path().join("other").to_str().unwrap()));
    }

    #[test]
    fn classes_and_escapes_match_as_in_gitignore() {
        for (pattern, text, expected) in [
            ("[0-9].log", "7.log", true),
            ("[0-9].log", "x.log", false),
            ("[\\--9]x", "5x", true),
            ("[\\]-_]x", "^x", true),
            ("[a-]x", "-x", true),
            (trimmed("foo\\  "), "foo ", true),
            (trimmed(" foo\\\\ "), "foo\\", true),
            ("*[!0-9].log", "a.log", true),
            ("*[^0-9].log", "17.log", false),
            ("[]a]", "]", true),
            ("[a-]", "-", true),
            ("[slug]", "s", true),
            ("[slug]", "[slug]", false),
            ("\\[slug\\]", "[slug]", true),
            ("[slug", "[slug", true),
            ("\\*", "a", false),
            ("?", "é", true),
            ("a*b*c", "axxbyyc", true),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn rules_that_cannot_be_read_exclude_the_project() {
        let dir = tempfile::tempdir().unwrap();
        let project = project(dir.path(), "");
        let with = |rules: &[u8]| {
            fs::write(dir.path().join(FILE), rules).unwrap();
            Ignored::of(&project, dir.path(), &[])
        };
        for rules in [b"caf\xe9/\n".as_slice(), b"*.pem\n[[:digit:]].log\n"] {
            let ignored = with(rules);
            assert!(ignored.excludes_directory() && ignored.flaw().is_some());
        }
        // A comment may hold anything, and a byte order mark at the start is no part of the first rule.
        let ignored = with(b"# caf\xe9\n*.pem\n");
        assert!(!ignored.excludes_directory());
        assert!(ignored.path_in("see a.pem").is_some());
        let ignored = with("\u{feff}*\n".as_bytes());
        assert!(ignored.excludes_directory() && ignored.flaw().is_none());
        fs::remove_file(dir.path().join(FILE)).unwrap();
        fs::create_dir(dir.path().join(FILE)).unwrap();
        let ignored = Ignored::of(&project, dir.path(), &[]);
        assert!(ignored.excludes_directory());
        assert!(ignored.flaw().unwrap().contains("cannot be read"));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_missing_file_excludes_the_project() {
        let dir = tempfile::tempdir().unwrap();
        let project = project(dir.path(), "");
        fs::remove_file(dir.path().join(FILE)).unwrap();
        assert!(!Ignored::of(&project, dir.path(), &[]).excludes_directory());
        std::os::unix::fs::symlink("missing", dir.path().join(FILE)).unwrap();
        let ignored = Ignored::of(&project, dir.path(), &[]);
        assert!(ignored.excludes_directory());
        assert!(ignored.flaw().unwrap().contains("cannot be read"));
    }

    #[test]
    fn the_rules_of_outer_directories_count_in_a_nested_project() {
        let dir = tempfile::tempdir().unwrap();
        let outer = project(dir.path(), "/private/\n/app/conf/\n*.pem\n/notes.md\n");
        let nested = |path: &str, rules: &str| {
            let path = outer.root.join(path);
            fs::create_dir_all(&path).unwrap();
            let project = project(&path, rules);
            assert_eq!(project.root, path);
            Ignored::of(&project, &path.join("src"), &[])
        };
        assert!(nested("private/deep", "!*\n").excludes_directory());
        let app = nested("app", "!*.pem\n");
        assert!(!app.excludes_directory());
        let absolute = format!("see {}/private/a", outer.root.display());
        for text in [
            "see conf/a.toml",
            "see ../conf/a.toml",
            "see ../../private/a",
            "see a.pem",
            &absolute,
        ] {
            assert!(app.path_in(text).is_some(), "{text}");
        }
        let beside = format!("see {}2/private/a", outer.root.display());
        for text in ["see notes.md", "see src/conf/a.toml", &beside] {
            assert_eq!(app.path_in(text), None, "{text}");
        }
    }
}
