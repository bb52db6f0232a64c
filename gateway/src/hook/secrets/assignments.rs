//! Values that are assigned to names such as `password`, in the notations of code, settings, headers and SQL.

use std::ops::Range;

use super::found::{MAX_JUDGED, Secret, up_to, word_after};
use super::names::{Name, is_name_char, name_of};
use super::values::{
    has_mixture, is_code, is_description, is_placeholder, is_sentence, is_strong, is_unlike_words,
    looks_like_key,
};

/// Types and functions that only wrap a literal: `SecretStr("…")`, `String::from("…")`.
const WRAPPERS: &[&str] = &[
    "new",
    "from",
    "String",
    "Secret",
    "SecretStr",
    "SecretString",
    "ConvertTo-SecureString",
];

pub(super) fn find(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = text[at..].find(is_name_char) {
        let start = at + next;
        let rest = &text[start..];
        let length = rest.find(|c: char| !is_name_char(c)).unwrap_or(rest.len());
        at = start + length;
        let Some((value, kind)) = value_of(text, start, at) else {
            continue;
        };
        at = at.max(value.end);
        found.push(Secret { range: value, kind });
    }
    found.extend(cookies(text));
    found
}

/// The secret that follows the identifier from `start` to `at`.
fn value_of(text: &str, start: usize, at: usize) -> Option<(Range<usize>, &'static str)> {
    let identifier = text[start..at].trim_start_matches('-');
    if let Some(value) = authorization(text, identifier, at) {
        return Some((value, "authorization"));
    }
    let name = name_of(identifier)
        .or_else(|| is_identified_by(text, start, at).then_some(Name::Password))
        // In a URL, `code` is the key of an Azure function, or the code of OAuth.
        .or_else(|| {
            (identifier == "code" && text[..start].ends_with(['?', '&'])).then_some(Name::Other)
        })?;
    let separator = separator(text, start, at, name)?;
    let value = value_at(text, name, &separator)?;
    let kind = match name {
        Name::Password => "password",
        Name::Key | Name::Other => "secret",
    };
    Some((value, kind))
}

/// `IDENTIFIED BY '…'`, in SQL.
fn is_identified_by(text: &str, start: usize, at: usize) -> bool {
    text[start..at].eq_ignore_ascii_case("by")
        && split_end(text[..start].trim_end(), "identified".len()).is_some_and(|(before, word)| {
            word.eq_ignore_ascii_case("identified")
                && (before.is_empty() || before.ends_with(char::is_whitespace))
        })
}

/// A text before and after the position `length` bytes before its end.
fn split_end(text: &str, length: usize) -> Option<(&str, &str)> {
    text.split_at_checked(text.len().checked_sub(length)?)
}

/// The credentials after `Bearer` or `Basic`, or in a header `Authorization` with another scheme or none. In the header
/// anything counts after `Bearer`, `Basic` and `Token`, elsewhere only what looks random.
fn authorization(text: &str, identifier: &str, at: usize) -> Option<Range<usize>> {
    let is = |name: &str| identifier.eq_ignore_ascii_case(name);
    let judged = |at: usize| word_after(up_to(text, at + MAX_JUDGED), at);
    let (value_at, value, is_named) = if is("bearer") || is("basic") {
        if !text[at..].starts_with(' ') {
            return None;
        }
        (at, judged(at), false)
    } else if is("authorization") || is("proxy-authorization") {
        let rest = text[at..].trim_start_matches(['"', '\'', ' ']);
        let rest = rest.strip_prefix([':', '=', ','])?;
        let first_at = text.len() - rest.len();
        let first = judged(first_at);
        let scheme = &text[first.clone()];
        let is_scheme = scheme.bytes().all(|b| b.is_ascii_alphabetic());
        if is_scheme && text[first.end..].starts_with(' ') {
            let is_named = ["bearer", "basic", "token"]
                .iter()
                .any(|name| scheme.eq_ignore_ascii_case(name));
            (first.end, judged(first.end), is_named)
        } else {
            (first_at, first, false)
        }
    } else {
        return None;
    };
    let given = &text[value.clone()];
    let has = |of: fn(&u8) -> bool| given.bytes().any(|b| of(&b));
    // "Authorization: Bearer authentication is required", and `ACCESS_TOKEN`.
    let is_in_sentence = || {
        given.bytes().all(|b| b.is_ascii_lowercase())
            && text[value.end..]
                .strip_prefix(' ')
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
    };
    let may_be_any = || is_named && !is_in_sentence() && name_of(given).is_none();
    let is_secret = given.len() >= 8
        && !is_placeholder(given)
        && !is_code(given)
        && given.bytes().all(|b| b.is_ascii_graphic())
        && (has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
            || given.ends_with('=')
            || is_unlike_words(given)
            || may_be_any());
    is_secret.then(|| word_after(text, value_at))
}

/// Random values of the headers `Cookie` and `Set-Cookie`, and of curl's cookies.
fn cookies(text: &str) -> Vec<Secret> {
    let mut found = Vec::new();
    let headers = ["ookie:", " -b '", " -b \"", "--cookie "];
    for name in headers {
        let mut until = 0;
        for (at, _) in text.match_indices(name) {
            let start = at + name.len();
            // The rest of the line was searched already.
            if start < until {
                continue;
            }
            let line = text[start..].lines().next().unwrap_or_default();
            until = start + line.len();
            for pair in line.split([';', ' ', '"', '\'']) {
                let Some((_, value)) = pair.split_once('=') else {
                    continue;
                };
                if value.len() >= 16 && looks_like_key(value) && !is_placeholder(value) {
                    let start = value.as_ptr() as usize - text.as_ptr() as usize;
                    found.push(Secret {
                        range: start..start + value.len(),
                        kind: "cookie",
                    });
                }
            }
        }
    }
    found
}

/// What stands between a name and its value.
struct Separator {
    /// Where the value begins.
    value: usize,
    /// Whether it is `=` or another sign that sentences do not have.
    is_equals: bool,
    /// Whether no space stands before the value.
    is_close: bool,
    /// Whether only a value in quotes counts.
    needs_quotes: bool,
    /// Whether `&` ends the value, as in the query of a URL.
    is_in_query: bool,
    /// Whether the name begins a form or a query, or a part of it: `"password=…"`.
    is_in_form: bool,
}

/// What stands between the identifier from `start` to `at` and its value. `None` if the identifier has no value.
fn separator(text: &str, start: usize, at: usize, name: Name) -> Option<Separator> {
    let bytes = text.as_bytes();
    let before = text[..start].trim_end_matches(['"', '\'', '`', '\\']);
    let is_in_tag = before.ends_with('<');
    let mut next = at;
    // The quote of a name in JSON, also in JSON inside JSON, and `config["password"]`.
    let rest = &text[at..];
    let after_quote = rest.strip_prefix('\\').unwrap_or(rest);
    let is_quoted_name = after_quote.starts_with(['"', '\'', '`']);
    if is_quoted_name {
        next = text.len() - after_quote.len() + 1;
        next += usize::from(bytes.get(next) == Some(&b']'));
    }
    let spaced = text.len() - text[next..].trim_start_matches([' ', '\t']).len();
    let rest = &text[spaced..];
    // A separator that takes the first `length` bytes of `rest`.
    let of = |length: usize, is_equals: bool, needs_quotes: bool| {
        let value = text.len()
            - text[spaced + length..]
                .trim_start_matches([' ', '\t'])
                .len();
        Separator {
            value,
            is_equals,
            is_close: value == spaced + length,
            needs_quotes,
            is_in_query: before.len() == start && before.ends_with(['?', '&']),
            is_in_form: is_equals && text[..start].ends_with(['?', '&', '"', '\'']),
        }
    };
    // `key="password" value="…"` in XML, `name: PASSWORD` and `value: …` in YAML, and `<password>…</password>`.
    if let Some(length) = value_beside(rest) {
        return Some(of(length, true, false));
    }
    if is_in_tag && rest.starts_with('>') {
        return Some(of(1, true, false));
    }
    for sign in ["===", "!==", "==", "!="] {
        if rest.starts_with(sign) {
            return Some(of(sign.len(), true, true));
        }
    }
    for sign in [":=", "=>", "="] {
        if rest.starts_with(sign) {
            return Some(of(sign.len(), true, false));
        }
    }
    // A path of Rust, and a variable of psql.
    if rest.starts_with("::") || rest.starts_with(":'") && spaced > at {
        return None;
    }
    if let Some(after) = rest.strip_prefix([':', '：']) {
        // `password: string = "…"`
        let typed = head(after, 60).split_once('=').filter(|(kind, value)| {
            kind.len() <= 40
                && !kind.contains(['\n', '"', '\'', ',', ';'])
                && kind
                    .trim_start_matches([' ', '&'])
                    .starts_with(char::is_alphabetic)
                && value.trim_start().starts_with(['"', '\'', '`'])
        });
        let colon = rest.len() - after.len();
        return Some(match typed {
            Some((kind, _)) => of(colon + kind.len() + 1, true, true),
            None => of(colon, false, false),
        });
    }
    // `setPassword("…")`, and `("password", "…")`, `define('PASSWORD', '…')`.
    if rest.starts_with('(') && !is_quoted_name {
        return Some(of(1, true, true));
    }
    if rest.starts_with(',') && is_quoted_name && before.trim_end().ends_with('(') {
        return Some(of(1, true, true));
    }
    if spaced == next {
        return None;
    }
    let is_flag = text[start..at].starts_with("--");
    // `WITH PASSWORD '…'`, `password string = "…"` in Go.
    let is_sql = name == Name::Password && rest.starts_with('\'');
    let typed = head(rest, 60).split_once('=').filter(|(kind, value)| {
        !is_quoted_name
            && kind.len() <= 20
            && kind.trim().chars().all(is_name_char)
            && value.trim_start().starts_with(['"', '`'])
    });
    // `aws configure set aws_secret_access_key …`
    let is_argument = name == Name::Key && is_strong(&text[word_after(text, spaced)]);
    match typed {
        Some((kind, _)) => Some(of(kind.len() + 1, true, true)),
        None if is_flag || is_argument => Some(of(0, true, false)),
        None if is_sql => Some(of(0, true, true)),
        None => None,
    }
}

/// If `rest`, the text after a name, goes on with `value=` or `"value": `, the length up to the value.
fn value_beside(rest: &str) -> Option<usize> {
    let after = rest
        .trim_start_matches([',', ' ', '\t', '\r', '\n'])
        .trim_start_matches(['"', '\'']);
    if after.len() == rest.len() {
        return rest.starts_with("value=").then_some("value=".len());
    }
    let after = after.strip_prefix("value")?.trim_start_matches(['"', '\'']);
    let after = after.strip_prefix([':', '='])?;
    Some(rest.len() - after.len())
}

/// The beginning of a text, at most `bytes` long.
fn head(text: &str, bytes: usize) -> &str {
    let end = text
        .char_indices()
        .map(|(at, _)| at)
        .take_while(|at| *at <= bytes)
        .last();
    match end {
        Some(end) if text.len() > bytes => &text[..end],
        _ => text,
    }
}

/// The value after a separator, if it may be a secret.
fn value_at(text: &str, name: Name, separator: &Separator) -> Option<Range<usize>> {
    let next = separator.value;
    let rest = &text[next..];
    if let Some(start) = quoted_start(rest) {
        let start = next + start;
        let quote = text[..start].chars().next_back()?;
        let has_escapes = !text[..start - quote.len_utf8()].ends_with('\\');
        // `"""…"""`
        let quotes = text[start..].len() - text[start..].trim_start_matches(quote).len();
        let start = if quotes >= 2 { start + quotes } else { start };
        let after = &text[start..];
        let secret = |end: usize| {
            // A text that was cut may have no closing quote.
            let is_closed = after[end..].starts_with(quote);
            if !is_closed && after.starts_with(' ') {
                return None;
            }
            let value = after[..end].trim_end_matches(['\\', '\r']);
            let is_secret = match name {
                Name::Password => value.len() >= 4 && !is_sentence(value),
                Name::Key => value.len() >= 8 && !value.contains(' ') && looks_like_key(value),
                Name::Other => is_strong(value),
            };
            (is_secret && !is_placeholder(value)).then_some(start..start + value.len())
        };
        if has_escapes {
            let end = literal_end(after, quote, quote == '\'' && quotes == 0);
            // Some notations have no escapes. There the first quote ends the value.
            return secret(end).or_else(|| secret(first_end(after, quote)));
        }
        let judged = up_to(after, MAX_JUDGED);
        let end = nested_end(judged, quote);
        let Some(value) = secret(end) else {
            return secret(first_end(after, quote));
        };
        if end < judged.len() {
            return Some(value);
        }
        // A long value is removed as a whole.
        let value = after[..nested_end(after, quote)].trim_end_matches(['\\', '\r']);
        return Some(start..start + value.len());
    }
    if separator.needs_quotes {
        return None;
    }
    // A block of YAML, or nothing else on this line.
    let shown = rest.trim_start_matches(is_blank);
    let is_in_next_line = ["|", ">", "|-", ">-", "|+", ""]
        .into_iter()
        .any(|sign| shown.strip_prefix(sign).is_some_and(is_line_end));
    if is_in_next_line {
        return in_next_line(text, name, next);
    }
    let ends_value = |c: char| {
        c.is_whitespace()
            || matches!(c, '"' | '\'' | '`' | ',' | ';' | '<' | '>')
            || c == '&' && separator.is_in_query
    };
    let judged = up_to(rest, MAX_JUDGED);
    let end = judged.find(ends_value).unwrap_or(judged.len());
    let is_cut = end == judged.len() && end < rest.len();
    let value = rest[..end].trim_end_matches(CLOSING);
    if is_placeholder(value) || is_code(value) && !is_strong(value) {
        return None;
    }
    let ends_line = is_cut || is_line_end(&rest[end..]);
    // `PASSWORD=… command`
    let before = text[..next].strip_suffix('=').unwrap_or_default();
    let is_variable = before.ends_with(|c: char| c.is_ascii_uppercase());
    let is_alone = ends_line
        || is_variable
        || rest[end..].starts_with('<')
        || separator.is_in_form && rest[end..].starts_with(['&', '"', '\'']);
    let is_secret = match name {
        Name::Password => {
            value.len() >= 4
                && (has_mixture(value)
                    || is_unlike_words(value)
                    || value.len() >= 6
                        && is_alone
                        && (separator.is_equals && separator.is_close || !is_description(value)))
        }
        Name::Key => {
            value.len() >= 8
                && looks_like_key(value)
                && (separator.is_equals || has_mixture(value) || is_unlike_words(value))
        }
        Name::Other => is_strong(value),
    };
    if !is_secret {
        return None;
    }
    let value = match is_cut {
        true => rest[..rest.find(ends_value).unwrap_or(rest.len())].trim_end_matches(CLOSING),
        false => value,
    };
    Some(next..next + value.len())
}

/// The first quote, or the end of the line.
fn first_end(text: &str, quote: char) -> usize {
    text.find([quote, '\n']).unwrap_or(text.len())
}

/// The closing quote of a literal, or the end of the line. A quote after a `\` belongs to the value, and with
/// `is_doubled` also `''`, as in SQL, and `'\''`, as in a shell.
fn literal_end(text: &str, quote: char, is_doubled: bool) -> usize {
    let mut characters = text.char_indices();
    let mut is_escaped = false;
    while let Some((at, c)) = characters.next() {
        if c == '\n' {
            return at;
        }
        if c == quote && !is_escaped {
            let rest = characters.as_str();
            let inside = ["'", r"\''"]
                .into_iter()
                .find(|inside| is_doubled && rest.starts_with(inside));
            let Some(inside) = inside else {
                return at;
            };
            // Each character of it is one byte.
            characters.nth(inside.len() - 1);
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    text.len()
}

/// The closing quote of a literal inside a string, or the end of the line. There `\"` ends the literal, and `\\\"` is
/// a quote inside it.
fn nested_end(text: &str, quote: char) -> usize {
    let mut backslashes = 0;
    for (at, c) in text.char_indices() {
        if c == '\n' || c == quote && backslashes % 4 != 3 {
            return at;
        }
        backslashes = if c == '\\' { backslashes + 1 } else { 0 };
    }
    text.len()
}

/// Characters at the end of a value that belong to what is around it.
const CLOSING: [char; 5] = [')', '.', ']', '}', '\\'];

/// Whether the rest of the line is blank.
fn is_line_end(text: &str) -> bool {
    let rest = text.trim_start_matches(is_blank);
    rest.is_empty() || rest.starts_with('\n')
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() && c != '\n'
}

/// Where the text of a literal begins, after its quote: also of `b"…"`, `\"…`, and of a wrapped one.
fn quoted_start(rest: &str) -> Option<usize> {
    let place = head(rest, 50).find(['"', '\'', '`'])?;
    let before = rest[..place].trim_end_matches('\\');
    let wrapper = before
        .trim_end()
        .trim_end_matches('(')
        .rsplit([':', '.', ' '])
        .next();
    let is_prefix =
        before.is_empty() || matches!(before, "b" | "r" | "u" | "f" | "L" | "@" | "$" | "N");
    let is_wrapped = before.len() <= 40 && wrapper.is_some_and(|name| WRAPPERS.contains(&name));
    (is_prefix || is_wrapped).then_some(place + 1)
}

/// A value that stands alone in the line after its name.
fn in_next_line(text: &str, name: Name, at: usize) -> Option<Range<usize>> {
    let after = &text[at..];
    let rest = after[after.find('\n')?..].trim_start();
    let line = rest.lines().next().unwrap_or_default();
    let value = line.trim().trim_matches(['"', '\'', '`']);
    let is_secret = match name {
        Name::Password => value.len() >= 6 && has_mixture(value),
        Name::Key | Name::Other => is_strong(value) || value.len() >= 16 && looks_like_key(value),
    };
    let is_word = !value.contains(char::is_whitespace) && !value.contains(": ");
    if !is_secret || !is_word || value.ends_with(':') || is_placeholder(value) || is_code(value) {
        return None;
    }
    let start = value.as_ptr() as usize - text.as_ptr() as usize;
    Some(start..start + value.len())
}
