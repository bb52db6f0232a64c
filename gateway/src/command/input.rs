//! Reads the input of commands: texts, metadata, and the answer to a question.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Write as _};

use context_model::JsonObject;
use serde_json::Value;

use super::failure::Failure;
use super::inert::one_line;
use crate::scan::Scan;

/// One metadata field on the command line: `key=text` or `key:=json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    key: String,
    value: Value,
}

/// Reads `key=text` or `key:=json`.
///
/// # Errors
/// A sentence that names the two forms.
pub fn field(given: &str) -> Result<Field, String> {
    const FORMS: &str =
        "write key=text, or key:=JSON for a number, true, false, a list or an object";
    let (key, text) = given.split_once('=').ok_or(FORMS)?;
    let (key, value) = match key.strip_suffix(':') {
        Some(key) => {
            let value = serde_json::from_str(text)
                .map_err(|error| format!("`{text}` is not JSON ({error}); {FORMS}"))?;
            // Parsing has rounded an integer beyond 64 bits.
            if let Some(flaw) = Scan::of_value(text).flaw() {
                return Err(format!("the value {flaw}"));
            }
            (key, value)
        }
        None => (key, Value::from(text)),
    };
    if key.is_empty() {
        return Err(FORMS.to_owned());
    }
    Ok(Field {
        key: key.to_owned(),
        value,
    })
}

/// The fields as an object; null if there are none.
///
/// # Errors
/// A key that two fields have.
pub fn object(fields: Vec<Field>) -> Result<Value, Failure> {
    if fields.is_empty() {
        return Ok(Value::Null);
    }
    let mut members = JsonObject::new();
    for Field { key, value } in fields {
        if members.contains_key(&key) {
            return Err(Failure::Usage(format!(
                "--metadata names `{key}` more than once; give it one value"
            )));
        }
        members.insert(key, value);
    }
    Ok(members.into())
}

/// The merge patch that sets these fields and removes the keys of `unset`; null if it changes nothing.
///
/// # Errors
/// A key that two fields have, or that is both set and removed.
pub fn patch(fields: Vec<Field>, unset: Vec<String>) -> Result<Value, Failure> {
    if let Some(Field { key, .. }) = fields.iter().find(|field| unset.contains(&field.key)) {
        return Err(Failure::Usage(format!(
            "--metadata sets `{key}` and --unset removes it; give one of them"
        )));
    }
    let mut patch = object(fields)?;
    for key in unset {
        // A null of the patch removes its key.
        patch[key] = Value::Null;
    }
    Ok(patch)
}

/// The list; null if it is empty.
#[must_use]
pub fn list(items: Vec<String>) -> Value {
    if items.is_empty() {
        Value::Null
    } else {
        items.into()
    }
}

/// The text of an argument, or of stdin if it is `-` or absent. The line end that closes the text of stdin is dropped,
/// because `echo` adds it.
///
/// # Errors
/// stdin is a terminal although no text is given, or its text is not UTF-8 or longer than `max_bytes`.
pub fn text(given: Option<String>, max_bytes: usize) -> Result<String, Failure> {
    match given {
        Some(text) if text != "-" => Ok(text),
        None if io::stdin().is_terminal() => Err(Failure::Usage(
            "there is no text: give it as an argument, or through a pipe".to_owned(),
        )),
        _ => {
            let mut text = read(io::stdin(), "stdin", max_bytes)?;
            if text.ends_with('\n') {
                text.pop();
                if text.ends_with('\r') {
                    text.pop();
                }
            }
            Ok(text)
        }
    }
}

/// The text of a file, exactly, or of stdin if the name is `-`.
///
/// # Errors
/// It cannot be read, is not UTF-8, or is longer than `max_bytes`.
pub fn file(name: &str, max_bytes: usize) -> Result<String, Failure> {
    if name == "-" {
        return read(io::stdin(), "stdin", max_bytes);
    }
    let file = std::fs::File::open(name)
        .map_err(|error| Failure::Usage(format!("{name} cannot be read: {error}")))?;
    read(file, name, max_bytes)
}

fn read(from: impl io::Read, name: &str, max_bytes: usize) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(max_bytes as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::Usage(format!("{name} cannot be read: {error}")))?;
    if bytes.len() > max_bytes {
        return Err(Failure::Usage(format!(
            "{name} has more than {max_bytes} bytes, the largest request"
        )));
    }
    String::from_utf8(bytes).map_err(|_| Failure::Usage(format!("{name} is not UTF-8 text")))
}

/// Asks the person on the terminal to confirm a deletion.
///
/// # Errors
/// The person did not say yes, the answer cannot be read, or there is no terminal to ask on.
pub fn confirm(question: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::Usage(
            "there is no terminal to ask whether to delete; pass --yes".to_owned(),
        ));
    }
    let question = one_line(question);
    let _ = write!(io::stderr(), "{question} This cannot be undone. [y/N] ");
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Failure::Usage(format!("the answer cannot be read: {error}")))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::Incomplete("nothing was deleted".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_is_text_unless_it_is_marked_as_json() {
        let fields = ["a=5", "b:=5", "c=x=y", "d:=[true]", "e=", "f.g:=null"];
        let fields = fields.map(|given| field(given).unwrap());
        assert_eq!(
            object(fields.into()).unwrap(),
            json!({"a": "5", "b": 5, "c": "x=y", "d": [true], "e": "", "f.g": null})
        );
        for wrong in ["a", "=5", ":=5", "a:=x", "n:=18446744073709551616"] {
            assert!(field(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_key_that_is_named_twice_is_refused() {
        let fields = |given: &[&str]| given.iter().map(|given| field(given).unwrap()).collect();
        let unset = |keys: &[&str]| keys.iter().map(ToString::to_string).collect();
        assert_eq!(
            patch(fields(&["a=1"]), unset(&["b", "b"])).unwrap(),
            json!({"a": "1", "b": null})
        );
        assert_eq!(
            patch(fields(&[]), unset(&["a"])).unwrap(),
            json!({"a": null})
        );
        assert_eq!(patch(fields(&[]), unset(&[])).unwrap(), Value::Null);
        for (given, removed) in [
            (&["a=1", "b=1"] as &[&str], &["b"] as &[&str]),
            (&["b:=null"], &["b"]),
            (&["b=1", "b:=2"], &[]),
        ] {
            let Err(Failure::Usage(sentence)) = patch(fields(given), unset(removed)) else {
                panic!("{given:?} and {removed:?} contradict each other");
            };
            assert!(sentence.contains("`b`"), "{sentence}");
        }
    }
}
