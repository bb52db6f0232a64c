//! The identity of a project: the same in every clone of it that has a remote.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::digest::hex;
use super::secrets::redact;

/// A project on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// `host/path` of its git remote, else the path of its root, or of the main working tree of a linked one. It never
    /// has a user or a password.
    pub name: String,
    /// The directory that has `.git`, else the directory in which the agent works.
    pub root: PathBuf,
    /// The branch that is checked out, without secrets.
    pub branch: Option<String>,
}

impl Project {
    /// The project of a directory, read from git's files without starting a process.
    #[must_use]
    pub fn of(directory: &Path) -> Self {
        let directory = directory
            .canonicalize()
            .unwrap_or_else(|_| directory.to_owned());
        for root in directory.ancestors() {
            let Some(git) = git_directory(root) else {
                continue;
            };
            let config = fs::read_to_string(git.common.join("config")).unwrap_or_default();
            return Self {
                name: remote(&config).unwrap_or_else(|| main_root(root, &git)),
                root: root.to_owned(),
                branch: branch(&git.own),
            };
        }
        Self {
            name: directory.to_string_lossy().into_owned(),
            root: directory,
            branch: None,
        }
    }

    /// The name in entries and thread ids, without secrets. A hashed name does not show which project it is.
    #[must_use]
    pub fn key(&self, is_hashed: bool) -> String {
        // A long name is hashed, because a thread id has at most 256 characters and must hold `/` and a session too.
        if is_hashed || self.name.chars().count() > 180 {
            let hash = Sha256::digest(self.name.as_bytes());
            format!("project-{}", hex(&hash[..8]))
        } else {
            redact(&self.name).text
        }
    }
}

/// The directories of a repository: `own` belongs to this working tree, `common` to all working trees.
struct Git {
    own: PathBuf,
    common: PathBuf,
}

fn git_directory(root: &Path) -> Option<Git> {
    let dot_git = root.join(".git");
    let found = fs::metadata(&dot_git).ok()?;
    if found.is_dir() {
        return Some(Git {
            own: dot_git.clone(),
            common: dot_git,
        });
    }
    // A linked working tree or a submodule: `gitdir: path`.
    let text = fs::read_to_string(&dot_git).ok()?;
    let own = root.join(text.strip_prefix("gitdir:")?.trim());
    let common = fs::read_to_string(own.join("commondir"))
        .map_or_else(|_| own.clone(), |common| own.join(common.trim()));
    Some(Git { own, common })
}

/// The path of the main working tree. Without a remote it is the name of the project in all linked working trees.
fn main_root(root: &Path, git: &Git) -> String {
    let common = git.common.canonicalize().unwrap_or_default();
    let main = (common.file_name().is_some_and(|name| name == ".git"))
        .then(|| common.parent())
        .flatten();
    main.unwrap_or(root).to_string_lossy().into_owned()
}

fn branch(git: &Path) -> Option<String> {
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    head.trim()
        .strip_prefix("ref: refs/heads/")
        .map(|name| redact(name).text)
}

/// Host and path of `origin`, else of the first remote that is on a host.
fn remote(config: &str) -> Option<String> {
    let mut name = None;
    let mut first = None;
    for line in config.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            name = section
                .strip_prefix("remote \"")
                .and_then(|rest| rest.split('"').next());
        } else if let (Some(name), Some((key, url))) = (name, line.split_once('='))
            && key.trim().eq_ignore_ascii_case("url")
            && let Some(identity) = host_and_path(url.trim().trim_matches('"'))
        {
            if name == "origin" {
                return Some(identity);
            }
            first = first.or(Some(identity));
        }
    }
    first
}

/// `host/path` of a remote's URL: the same for https and ssh, without user, password, port, query and `.git`.
fn host_and_path(url: &str) -> Option<String> {
    let (authority, path) = match url.split_once("://") {
        Some(("file", _)) => return None,
        Some((_, rest)) => rest.split_once('/')?,
        None => {
            // The form of scp, `user@host:path`. With a `/` before the colon it is a local path.
            let (authority, path) = match url.find("]:") {
                Some(end) => (&url[..=end], &url[end + 2..]),
                None => url.split_once(':')?,
            };
            if authority.contains('/') {
                return None;
            }
            (authority, path)
        }
    };
    // A password that was not encoded may contain `@` and `/`. Digits after the colon may be a port, and `[` begins an
    // IPv6 address: if such a host were taken for a user, projects on different hosts would have one name.
    let ends_in_password = url.contains("://")
        && !authority.contains(['@', '['])
        && authority
            .split_once(':')
            .is_some_and(|(_, after)| !after.bytes().all(|b| b.is_ascii_digit()));
    let (authority, path) = match path.rsplit_once('@') {
        Some((_, rest)) if ends_in_password => rest.split_once('/')?,
        _ => (authority, path),
    };
    // What stands before another `@` may be a part of a password.
    let may_have_password = authority.contains('@') || url.contains("://") || path.contains(':');
    if path.contains('@') && may_have_password {
        return None;
    }
    let host = authority.rsplit('@').next()?;
    let host = match host.strip_prefix('[') {
        Some(address) => address.split(']').next()?,
        None => host.split(':').next()?,
    };
    let host = host.to_ascii_lowercase();
    let path = path.split(['?', '#']).next()?.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path).trim_matches('/');
    (!host.is_empty() && !path.is_empty()).then(|| format!("{host}/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_remote_is_one_identity_without_credentials() {
        for url in [
            "https://github.com/acme/app.git",
            "https://github.com/acme/app",
            "https://GitHub.com/acme/app/",
            "https://user:pa55@github.com/acme/app.git",
            "https://user:p@ss@github.com/acme/app.git",
            "https://user:p/a@github.com/acme/app.git",
            "https://token123@github.com/acme/app.git",
            "https://github.com/acme/app.git?access=1",
            "git@github.com:acme/app.git",
            "github.com:acme/app.git",
            "ssh://git@github.com:22/acme/app.git",
            "git://github.com/acme/app.git",
        ] {
            assert_eq!(
                host_and_path(url).as_deref(),
                Some("github.com/acme/app"),
                "{url}"
            );
        }
        let same = [
            "git@[2001:db8::1]:acme/app.git",
            "ssh://git@[2001:DB8::1]:22/acme/app",
        ];
        for url in same {
            let identity = host_and_path(url);
            assert_eq!(identity.as_deref(), Some("2001:db8::1/acme/app"), "{url}");
        }
        for url in [
            "https://user:p@s/s@github.com/acme/app.git",
            "https://tok/en@github.com/acme/app",
            "user:secret@host:acme/app",
            "https://a.example:8443/@scope/app",
            "ssh://[2001:db8::1]/@scope/app",
            "/srv/git/app.git",
            "../app",
            "file:///srv/app.git",
            "./a:b",
            "",
        ] {
            assert_eq!(host_and_path(url), None, "{url}");
        }
    }

    #[test]
    fn a_project_is_its_remote_in_each_directory_and_working_tree() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("app");
        let tree = dir.path().join("tree");
        fs::create_dir_all(root.join(".git/worktrees/tree")).unwrap();
        fs::create_dir_all(root.join("src/deep")).unwrap();
        fs::create_dir_all(&tree).unwrap();
        fs::write(root.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(
            root.join(".git/worktrees/tree/HEAD"),
            "ref: refs/heads/fix/tabs\n",
        )
        .unwrap();
        fs::write(root.join(".git/worktrees/tree/commondir"), "../..\n").unwrap();
        let gitdir = root.join(".git/worktrees/tree");
        fs::write(tree.join(".git"), format!("gitdir: {}\n", gitdir.display())).unwrap();
        let of = |path: &Path| Project::of(path);
        let plain = root.canonicalize().unwrap().to_string_lossy().into_owned();
        assert_eq!(
            of(&root.join("src/deep")).name,
            plain,
            "without a remote: the root"
        );
        assert_eq!(of(&tree).name, plain);
        fs::write(
            root.join(".git/config"),
            "[remote \"fork\"]\n\turl = git@github.com:me/app.git\n[remote \"origin\"]\n\turl = https://x:y@github.com/acme/app.git\n[branch \"main\"]\n\tremote = origin\n",
        )
        .unwrap();
        let deep = of(&root.join("src/deep"));
        assert_eq!(deep.name, "github.com/acme/app");
        assert_eq!(deep.root, root.canonicalize().unwrap());
        assert_eq!(deep.branch.as_deref(), Some("main"));
        let linked = of(&tree);
        assert_eq!(
            (linked.name.as_str(), linked.branch.as_deref()),
            ("github.com/acme/app", Some("fix/tabs"))
        );
        // A secret in the path of the remote or in the branch's name is not stored.
        let token = format!("ghp_{}", "a1B2".repeat(9));
        fs::write(
            root.join(".git/config"),
            format!("[remote \"origin\"]\n\turl = http://host/{token}/b\n"),
        )
        .unwrap();
        let head = format!("ref: refs/heads/fix/{token}\n");
        fs::write(root.join(".git/HEAD"), head).unwrap();
        let secret = of(&root);
        assert_eq!(secret.key(false), "host/[removed: GitHub token]/b");
        assert_eq!(
            secret.branch.as_deref(),
            Some("fix/[removed: GitHub token]")
        );
        // Two paths never map to one identity.
        assert_ne!(
            of(&dir.path().join("a.b")).name,
            of(&dir.path().join("a/b")).name
        );
        assert_ne!(deep.key(true), deep.name);
        assert!(deep.key(true).starts_with("project-"));
        assert_eq!(deep.key(true), linked.key(true));
    }
}
