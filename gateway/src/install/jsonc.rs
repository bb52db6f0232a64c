//! Changes one member of a JSON file with comments, and nothing else of it.
//!
//! The file is scanned for the place of the member; the text around that place is copied as it is. Comments (`//` and
//! `/* */`) and trailing commas are understood, because the clients that own these files write them.

use serde_json::Value;

/// Nested values deeper than this are refused.
const MAX_DEPTH: usize = 200;

/// The text with the member at `path` set to `value`; objects on the way are made where they are missing.
///
/// # Errors
/// A sentence when the text is not JSON with comments, or something on the path is not an object.
pub fn set(text: &str, path: &[&str; 2], value: &Value) -> Result<String, String> {
    if text.trim().is_empty() {
        return Ok(rendered(
            &serde_json::json!({ path[0]: { path[1]: value } }),
            "",
            "  ",
        ) + "\n");
    }
    let root = root(text)?;
    let unit = indent_unit(text, &root);
    let Some(servers) = root.member(path[0]) else {
        return Ok(insert(
            text,
            &root,
            path[0],
            &serde_json::json!({ path[1]: value }),
            &unit,
        ));
    };
    let servers = object_at(text, servers, path[0])?;
    match servers.member(path[1]) {
        Some(existing) => {
            let current = &text[existing.value.0..existing.value.1];
            if serde_json::from_str::<Value>(current).is_ok_and(|current| current == *value) {
                return Ok(text.to_owned());
            }
            let indent = line_indent(text, existing.key.0);
            Ok(format!(
                "{}{}{}",
                &text[..existing.value.0],
                rendered(value, &indent, &unit),
                &text[existing.value.1..]
            ))
        }
        None => Ok(insert(text, &servers, path[1], value, &unit)),
    }
}

/// The text without the member at `path`; `None` when there is none.
///
/// # Errors
/// As for [`set`].
pub fn remove(text: &str, path: &[&str; 2]) -> Result<Option<String>, String> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let root = root(text)?;
    let Some(servers) = root.member(path[0]) else {
        return Ok(None);
    };
    let servers = object_at(text, servers, path[0])?;
    let Some(position) = servers
        .members
        .iter()
        .position(|member| member.name == path[1])
    else {
        return Ok(None);
    };
    let member = &servers.members[position];
    let (start, end) = match (
        position
            .checked_sub(1)
            .map(|before| &servers.members[before]),
        member.comma,
    ) {
        // From the end of the one before to the end of this one: its comma goes, a later one stays.
        (Some(before), None) => {
            let comma = before.comma.unwrap_or(before.value.1);
            let gap = &text[comma + 1..member.key.0];
            if gap.trim().is_empty() {
                (comma, member.value.1)
            } else {
                // A comment stands between: only the comma and the member go.
                let kept = format!(
                    "{}{}",
                    &text[..comma],
                    &text[comma + 1..member.key.0].trim_end()
                );
                return Ok(Some(kept + &text[member.value.1..]));
            }
        }
        (_, Some(comma)) => (
            line_start(text, member.key.0),
            after_line_break(text, comma + 1),
        ),
        (None, None) => {
            let start = line_start(text, member.key.0);
            let alone = text[servers.open + 1..member.key.0].trim().is_empty()
                && text[member.value.1..servers.close].trim().is_empty();
            if alone {
                (servers.open + 1, servers.close)
            } else {
                (start, after_line_break(text, member.value.1))
            }
        }
    };
    Ok(Some(format!("{}{}", &text[..start], &text[end..])))
}

fn insert(text: &str, object: &Object, name: &str, value: &Value, unit: &str) -> String {
    let outer = line_indent(text, object.open);
    let indent = match object.members.first() {
        Some(first) if text[object.open..first.key.0].contains('\n') => {
            line_indent(text, first.key.0)
        }
        _ => format!("{outer}{unit}"),
    };
    let member = format!("{}: {}", Value::from(name), rendered(value, &indent, unit));
    match object.members.last() {
        None => {
            let inside = text[object.open + 1..object.close].trim_end();
            format!(
                "{}{inside}\n{indent}{member}\n{outer}{}",
                &text[..=object.open],
                &text[object.close..]
            )
        }
        Some(last) => {
            // A comment behind the last member stays with it; a trailing comma is the style of the file.
            let at = last.comma.map_or(last.value.1, |comma| comma + 1);
            let (separator, trailing) = if last.comma.is_some() {
                ("", ",")
            } else {
                (",", "")
            };
            let behind = text[at..object.close].trim_end();
            format!(
                "{}{separator}{behind}\n{indent}{member}{trailing}\n{outer}{}",
                &text[..at],
                &text[object.close..]
            )
        }
    }
}

/// `value` over several lines, those after the first indented by `indent`.
fn rendered(value: &Value, indent: &str, unit: &str) -> String {
    use serde::Serialize as _;
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(unit.as_bytes());
    let _ = value.serialize(&mut serde_json::Serializer::with_formatter(
        &mut out, formatter,
    ));
    String::from_utf8_lossy(&out).replace('\n', &format!("\n{indent}"))
}

fn line_start(text: &str, at: usize) -> usize {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    if text[start..at].trim().is_empty() {
        start
    } else {
        at
    }
}

fn line_indent(text: &str, at: usize) -> String {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    text[start..at]
        .chars()
        .take_while(|c| matches!(c, ' ' | '\t'))
        .collect()
}

/// Past the line break, when nothing else is left on the line.
fn after_line_break(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r']).len();
    if rest[blank..].starts_with('\n') {
        at + blank + 1
    } else {
        at
    }
}

fn indent_unit(text: &str, root: &Object) -> String {
    let found = root
        .members
        .first()
        .map(|first| line_indent(text, first.key.0))
        .unwrap_or_default();
    if found.is_empty() {
        "  ".to_owned()
    } else {
        found
    }
}

/// Where an object and its members are, as byte offsets.
struct Object {
    open: usize,
    close: usize,
    members: Vec<Member>,
}

struct Member {
    name: String,
    key: (usize, usize),
    value: (usize, usize),
    comma: Option<usize>,
}

impl Object {
    /// The last member of this name, which is the one that readers use.
    fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().rev().find(|member| member.name == name)
    }
}

fn root(text: &str) -> Result<Object, String> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.space()?;
    let object = scanner.object(0)?.ok_or("it does not hold a JSON object")?;
    scanner.space()?;
    if scanner.at != text.len() {
        Err("something follows the JSON object".into())
    } else {
        Ok(object)
    }
}

fn object_at(text: &str, member: &Member, name: &str) -> Result<Object, String> {
    Scanner {
        text,
        at: member.value.0,
    }
    .object(0)?
    .ok_or_else(|| format!("`{name}` is not an object"))
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn error<T>(&self, expected: &str) -> Result<T, String> {
        let line = self.text.as_bytes()[..self.at.min(self.text.len())]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
            + 1;
        Err(format!(
            "it is not valid JSON: line {line}: expected {expected}"
        ))
    }

    /// Skips white space and comments.
    fn space(&mut self) -> Result<(), String> {
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            if rest.starts_with(b"//") {
                self.at += rest
                    .iter()
                    .position(|byte| *byte == b'\n')
                    .unwrap_or(rest.len());
            } else if rest.starts_with(b"/*") {
                match self.text[self.at + 2..].find("*/") {
                    Some(end) => self.at += end + 4,
                    None => return self.error("the end of a comment"),
                }
            } else if rest.starts_with("\u{feff}".as_bytes()) {
                self.at += 3;
            } else if rest.first().is_some_and(u8::is_ascii_whitespace) {
                self.at += 1;
            } else {
                return Ok(());
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Option<Object>, String> {
        if self.peek() != Some(b'{') {
            return Ok(None);
        }
        if depth > MAX_DEPTH {
            return self.error("fewer nested values");
        }
        let open = self.at;
        let mut members: Vec<Member> = Vec::new();
        self.at += 1;
        loop {
            self.space()?;
            match self.peek() {
                Some(b'}') => break,
                Some(b'"') if members.last().is_none_or(|last| last.comma.is_some()) => {}
                _ => return self.error("a member, `,` or `}`"),
            }
            let start = self.at;
            self.string()?;
            let key = (start, self.at);
            let name = serde_json::from_str(&self.text[key.0..key.1])
                .or_else(|_| self.error("a valid string"))?;
            self.space()?;
            if self.peek() != Some(b':') {
                return self.error("`:`");
            }
            self.at += 1;
            self.space()?;
            let start = self.at;
            self.value(depth + 1)?;
            let value = (start, self.at);
            self.space()?;
            let comma = (self.peek() == Some(b',')).then_some(self.at);
            self.at += usize::from(comma.is_some());
            members.push(Member {
                name,
                key,
                value,
                comma,
            });
        }
        let close = self.at;
        self.at += 1;
        Ok(Some(Object {
            open,
            close,
            members,
        }))
    }

    fn value(&mut self, depth: usize) -> Result<(), String> {
        match self.peek() {
            Some(b'{') => self.object(depth).map(drop),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string(),
            _ => {
                let start = self.at;
                while self.peek().is_some_and(|byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
                }) {
                    self.at += 1;
                }
                match serde_json::from_str::<Value>(&self.text[start..self.at]) {
                    Ok(_) => Ok(()),
                    Err(_) => self.error("a value"),
                }
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return self.error("fewer nested values");
        }
        self.at += 1;
        loop {
            self.space()?;
            if self.peek() == Some(b']') {
                self.at += 1;
                return Ok(());
            }
            self.value(depth + 1)?;
            self.space()?;
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {}
                _ => return self.error("`,` or `]`"),
            }
        }
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.at += 2,
                Some(b'\n') | None => return self.error("the end of a string"),
                Some(_) => self.at += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PATH: [&str; 2] = ["servers", "ctx"];

    fn set_then_remove(text: &str) -> (String, String) {
        let installed = set(text, &PATH, &json!({"url": "u"})).unwrap();
        let removed = remove(&installed, &PATH).unwrap().unwrap();
        (installed, removed)
    }

    #[test]
    fn a_member_is_added_in_the_style_of_the_file_and_taken_out_without_a_trace() {
        for text in [
            "{\n\t\"servers\": {\n\t\t\"a\": 1\n\t}\n}\n",
            "{\n  \"servers\": {\n    \"a\": 1, // one\n    /* two */ \"b\": {\"x\": [1, 2,],},\n  },\n}",
            "{ // head\n  \"x\": \"// no comment\",\n  \"servers\": {\n    \"a\": \"\\\"}\"\n  }\n}",
        ] {
            let (installed, removed) = set_then_remove(text);
            assert!(installed.contains("\"ctx\": {"), "{installed}");
            assert_eq!(removed, text, "{installed}");
        }
        let (installed, _) = set_then_remove("{\n\t\"servers\": {\n\t\t\"a\": 1\n\t}\n}\n");
        assert_eq!(
            installed,
            "{\n\t\"servers\": {\n\t\t\"a\": 1,\n\t\t\"ctx\": {\n\t\t\t\"url\": \"u\"\n\t\t}\n\t}\n}\n"
        );
    }

    #[test]
    fn what_comes_out_is_json_when_what_went_in_was() {
        for text in [
            "",
            "{}",
            "{\"servers\":{}}",
            "{\"servers\":{\"a\":1}}",
            "{\"x\":1}",
            "{\"servers\":{\"ctx\":{\"old\":1},\"z\":2}}",
            "{\n}\n",
        ] {
            let (installed, removed) = set_then_remove(text);
            let value: Value =
                serde_json::from_str(&installed).unwrap_or_else(|e| panic!("{e}: {installed}"));
            assert_eq!(value["servers"]["ctx"], json!({"url": "u"}), "{text}");
            let value: Value =
                serde_json::from_str(&removed).unwrap_or_else(|e| panic!("{e}: {removed}"));
            assert_eq!(value["servers"].get("ctx"), None);
        }
    }

    #[test]
    fn an_equal_entry_is_not_rewritten_and_a_missing_one_not_removed() {
        let text = "{\"servers\": {\"ctx\": { \"url\" : \"u\" }}}";
        assert_eq!(set(text, &PATH, &json!({"url": "u"})).unwrap(), text);
        assert_eq!(remove("{\"servers\": {}}", &PATH).unwrap(), None);
        assert_eq!(remove("", &PATH).unwrap(), None);
    }

    #[test]
    fn every_prefix_of_a_file_is_refused_or_understood_without_a_panic() {
        let text = "{\n  // ü\n  \"servers\": {\"a\": [1, \"\\u00fc\", {\"b\": null}], /* c */ \"ctx\": 1},\n}\n";
        for end in 0..text.len() {
            if text.is_char_boundary(end) {
                let _ = set(&text[..end], &PATH, &json!(1));
                let _ = remove(&text[..end], &PATH);
            }
        }
        assert!(set(&"[".repeat(100_000), &PATH, &json!(1)).is_err());
        assert!(
            set(
                &format!("{{\"a\":{}", "[".repeat(100_000)),
                &PATH,
                &json!(1)
            )
            .is_err()
        );
    }
}
