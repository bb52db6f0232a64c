//! Secrets in arguments of commands and calls, and in password files.

use std::cell::LazyCell;
use std::collections::HashSet;
use std::ops::Range;

use super::found::{Secret, lines, word_after, words};
use super::names::is_name_char;
use super::values::{has_mixture, is_placeholder};

pub(super) fn find(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    for (offset, line) in lines(text) {
        let passwords = arguments(line)
            .into_iter()
            .chain(htpasswd(line))
            .chain(piped(line))
            .chain(netrc(line))
            .chain(pgpass(line))
            .chain(wifi(line))
            .chain(pairs(line));
        for range in passwords {
            if !range.is_empty() && !is_placeholder(&line[range.clone()]) {
                found.push(Secret {
                    range: offset + range.start..offset + range.end,
                    kind: "password",
                });
            }
        }
    }
    found
}

/// Programs with the password in `-pX`.
const PASSWORD_PROGRAMS: &[&str] = &[
    "mysql",
    "mysqldump",
    "mysqladmin",
    "mariadb",
    "mariadb-dump",
    "sshpass",
    "7z",
    "7za",
    "rar",
    "unrar",
];

/// Passwords after flags that do not name them: `sshpass -p X`, `redis-cli -a X`, `mysql -pX`, `curl -u user:X`,
/// `curl -sSu user:X`, `http -a user:X`.
fn arguments(line: &str) -> Vec<Range<usize>> {
    let programs = LazyCell::new(|| {
        line.split([' ', '\t', '/', '`', '$', '(', '"', '\''])
            .collect::<HashSet<&str>>()
    });
    let called = |names: &[&str]| names.iter().any(|name| programs.contains(*name));
    let mut found = Vec::new();
    for (start, flag) in words(line).filter(|(_, word)| word.starts_with('-')) {
        let after = start + flag.len();
        let takes_password = match flag {
            "-p" => {
                called(&["sshpass"])
                    || called(&["login"])
                        && called(&["docker", "podman", "az", "oc", "helm", "nerdctl", "skopeo"])
                    || called(&["mongo", "mongosh", "mongodump", "mongorestore"])
            }
            "-a" => called(&["redis-cli"]),
            "-P" => called(&["unzip", "zip", "sqlcmd", "bcp"]),
            "-N" => called(&["ssh-keygen"]),
            "-pw" => called(&["plink", "pscp", "psftp"]),
            "-w" => called(&["ldapsearch", "ldapadd", "ldapmodify"]),
            "--oauth2-bearer" => true,
            _ => false,
        };
        let user_at = match flag {
            "-u" | "--user" | "--proxy-user" => Some(after),
            "-U" if !called(&["curl"]) => called(&["smbclient", "rpcclient"]).then_some(after),
            "-a" => called(&["http", "https", "xh", "xhs"]).then_some(after),
            _ if called(&["curl"]) => flag_of_user(flag).map(|length| start + length),
            _ => None,
        };
        if takes_password {
            found.push(argument_after(line, after));
        } else if let Some(user_at) = user_at {
            let value = argument_after(line, user_at);
            if let Some(sign) = line[value.clone()].find([':', '%']) {
                let is_id = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
                // `docker run -u 1000:1000`
                if !line[value.clone()].split(':').all(is_id) {
                    found.push(value.start + sign + 1..value.end);
                }
            }
        } else if flag.starts_with("-p") && flag.len() > 2 && is_of_password_program(line, start) {
            let value = argument_after(line, start + 2);
            // `docker run --name mysql -p3306:3306`
            let given = &line[value.clone()];
            let is_port =
                given.contains(':') && given.bytes().all(|b| b.is_ascii_digit() || b == b':');
            if value.start <= start + 3 && !is_port {
                found.push(value);
            }
        }
    }
    found
}

/// Whether the flag at `at` is the first `-p…` after a program whose `-p` has a password, in the same command.
fn is_of_password_program(line: &str, at: usize) -> bool {
    const BEFORE_COMMAND: [char; 3] = ['|', ';', '&'];
    for word in line[..at].split_whitespace().rev() {
        let mut parts = word.rsplit(|c: char| BEFORE_COMMAND.contains(&c) || "/`('\"".contains(c));
        if parts
            .next()
            .is_some_and(|name| PASSWORD_PROGRAMS.contains(&name))
        {
            return true;
        }
        if word.starts_with("-p") || word.contains(BEFORE_COMMAND) {
            return false;
        }
    }
    false
}

/// The last argument of `htpasswd -b FILE USER X`, and of `htpasswd -nb USER X`.
fn htpasswd(line: &str) -> Option<Range<usize>> {
    let program = line
        .match_indices("htpasswd ")
        .map(|(at, name)| at + name.len())
        .find(|at| line[*at..].trim_start().starts_with('-'))?;
    let (mut has_password, mut arguments, mut is_value) = (false, 2, false);
    for (start, word) in words(&line[program..]) {
        if std::mem::take(&mut is_value) {
            continue;
        }
        if let Some(flags) = word.strip_prefix('-') {
            has_password |= flags.contains('b');
            arguments -= usize::from(flags.contains('n'));
            // The cost and the rounds have a value.
            is_value = flags.ends_with(['C', 'r']);
        } else if matches!(word, "|" | "&&" | ";") {
            return None;
        } else if arguments > 1 {
            arguments -= 1;
        } else {
            let user_end = program + start + word.len();
            return has_password.then(|| argument_after(line, user_end));
        }
    }
    None
}

/// The length of a flag of curl up to the end of its `u` or `U`, after which the user stands: `-u`, `-sSu`, `-uann:X`.
fn flag_of_user(flag: &str) -> Option<usize> {
    let at = flag.find(['u', 'U'])?;
    let others = flag[..at].strip_prefix('-')?;
    let have_no_value = others.bytes().all(|b| b"fgiklnsvGILNOS".contains(&b));
    have_no_value.then_some(at + 1)
}

/// The argument from `at` on: a word, or all that stands between two quotes.
fn argument_after(line: &str, at: usize) -> Range<usize> {
    let word = word_after(line, at);
    // `ssh-keygen -N "" -f FILE`. In `''red fox''`, as YAML has it in a string, the quotes belong to the value.
    let given = line[at..].trim_start();
    let after_quotes = given
        .strip_prefix("\"\"")
        .or_else(|| given.strip_prefix("''"));
    if after_quotes.is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace)) {
        return word.start..word.start;
    }
    let before = line[at..word.start].chars().next_back();
    let quote = before.filter(|c| matches!(c, '\'' | '"'));
    let length = quote.and_then(|quote| line[word.start..].find(quote));
    word.start..length.map_or(word.end, |length| word.start + length)
}

/// `echo X | docker login --password-stdin`, `echo user:X | chpasswd`, `chpasswd <<< user:X`.
fn piped(line: &str) -> Option<Range<usize>> {
    let reads = [
        "--password-stdin",
        "--with-token",
        "sudo -S",
        "passwd --stdin",
        "chpasswd",
        "smbpasswd",
        "cryptsetup",
    ];
    let reads_password = |command: &str| reads.iter().any(|reader| command.contains(reader));
    let value_at = match line.split_once("<<<") {
        Some((reader, value)) if reads_password(reader) => line.len() - value.len(),
        _ => {
            let (before, _) = line
                .split_once('|')
                .filter(|(_, reader)| reads_password(reader))?;
            [
                "echo -n ",
                "echo -e ",
                "echo ",
                "printf %s ",
                "printf '%s' ",
                "printf \"%s\" ",
                "printf '%s\\n' ",
                "printf \"%s\\n\" ",
                "printf ",
            ]
            .iter()
            .find_map(|command| before.find(command).map(|at| at + command.len()))?
        }
    };
    let value = argument_after(line, value_at);
    let user = match line.contains("chpasswd") {
        true => line[value.clone()].find(':').map_or(0, |colon| colon + 1),
        false => 0,
    };
    Some(value.start + user..value.end)
}

/// `machine HOST login USER password X`, as in .netrc.
fn netrc(line: &str) -> Option<Range<usize>> {
    let (_, after) = line.split_once("login ")?;
    let (_, after) = after.split_once(" password ")?;
    Some(word_after(line, line.len() - after.len()))
}

/// `WIFI:S:name;T:WPA;P:X;;`
fn wifi(line: &str) -> Option<Range<usize>> {
    let network = line.find("WIFI:")?;
    let start = network + line[network..].find(";P:")? + ";P:".len();
    let end = line[start..].find(';').map_or(line.len(), |at| start + at);
    Some(start..end)
}

/// Lines of `.pgpass`: `host:port:database:user:password`. The host may be an IPv6 address in brackets.
fn pgpass(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (_, word) in words(line) {
        let word = word.trim_matches(['"', '\'', '`']);
        let host_end = match word.starts_with('[') {
            true => word.find("]:").map(|at| at + 1),
            false => word.find(':').filter(|at| *at > 0),
        };
        let Some(host_end) = host_end else {
            continue;
        };
        let fields: Vec<&str> = word[host_end + 1..].splitn(4, ':').collect();
        let [port, database, user, password] = fields[..] else {
            continue;
        };
        let is_name = |name: &str| {
            name == "*"
                || name.starts_with(|c: char| c.is_ascii_alphabetic())
                    && name.chars().all(is_name_char)
        };
        let is_port = port == "*"
            || (2..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
        // A short number may be that of a line.
        let is_password =
            has_mixture(password) || password.len() >= 4 && !(2..=3).contains(&port.len());
        if is_port && is_name(database) && is_name(user) && is_password {
            let end = password.as_ptr() as usize - line.as_ptr() as usize + password.len();
            found.push(end - password.len()..end);
        }
    }
    found
}

/// The second argument of `login("user", "X")`, `.auth("user", "X")`, `auth=("user", "X")`, `Credentials(...)`.
fn pairs(line: &str) -> Option<Range<usize>> {
    let (start, name) = [
        "auth",
        "Auth",
        "login",
        "Login",
        "Credentials",
        "Credential",
        "authenticate",
        "sign_in",
    ]
    .iter()
    .flat_map(|name| line.match_indices(name))
    .find(|(at, name)| {
        let after = line[at + name.len()..].trim_start_matches([' ', '=']);
        after
            .strip_prefix('(')
            .is_some_and(|after| after.trim_start().starts_with(['"', '\'']))
    })?;
    let after = &line[start + name.len()..];
    let quote = after.find(['"', '\''])?;
    let user = &after[quote + 1..];
    let sign = after[quote..].chars().next()?;
    let (_, rest) = user.split_once(sign)?;
    let rest = rest.trim_start().strip_prefix(',')?.trim_start();
    let password = rest.strip_prefix(['"', '\''])?;
    let start = line.len() - password.len();
    let end = password.find(['"', '\'']).unwrap_or(password.len());
    (end >= 4).then_some(start..start + end)
}
