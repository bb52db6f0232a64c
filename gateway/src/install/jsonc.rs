//! Changes a member or array elements in a JSON file with comments and leaves the rest of the file unchanged.
//!
//! The file is parsed into a syntax tree whose nodes include comments, white space and commas. So unchanged parts are
//! written exactly as they were read.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstObjectProp, CstRootNode};
use serde_json::Value;

/// The syntax that clients use in their own files. Any other syntax beyond JSON is refused.
const JSON_WITH_COMMENTS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The text with the member at `path` set to `value`. Missing objects on the path are created.
///
/// # Errors
/// A sentence if the text is not JSON with comments, or if a value on the path is not an object.
pub fn set(text: &str, path: &[&str; 2], value: &Value) -> Result<String, String> {
    let (mark, root) = parse(text)?;
    let file = root.object_value_or_create().ok_or(NO_OBJECT)?;
    let new_object = || file.append(path[0], CstInputValue::Object(Vec::new()));
    let servers = member(&file, path[0]).unwrap_or_else(new_object);
    let servers = object(&servers, path[0])?;
    match member(&servers, path[1]) {
        Some(existing) if existing.to_serde_value().as_ref() == Some(value) => {}
        Some(existing) => existing.set_value(input(value)),
        None => {
            servers.append(path[1], input(value));
        }
    }
    Ok(format!("{mark}{root}"))
}

/// The value of the member at `path`. `None` if there is no such member.
///
/// # Errors
/// As for [`set`].
pub fn get(text: &str, path: &[&str; 2]) -> Result<Option<Value>, String> {
    let (_, root) = parse(text)?;
    Ok(find(&root, path)?.and_then(|[_, existing]| existing.to_serde_value()))
}

/// The text without the member at `path` and without the comments on its lines. The object around it goes too when it
/// is empty then. `None` if there is no such member.
///
/// # Errors
/// As for [`set`].
pub fn remove(text: &str, path: &[&str; 2]) -> Result<Option<String>, String> {
    let (mark, root) = parse(text)?;
    let Some([servers, existing]) = find(&root, path)? else {
        return Ok(None);
    };
    existing.remove();
    remove_if_empty(servers);
    Ok(Some(format!("{mark}{root}")))
}

/// The text with `value` at the end of the array at `path` and without the elements that `is_ours` selects. If `value`
/// is already the only such element, nothing changes. Missing objects and arrays on the path are created.
///
/// # Errors
/// As for [`set`], and if the value at the path is not an array.
pub fn set_element(
    text: &str,
    path: &[&str; 2],
    is_ours: impl Fn(&Value) -> bool,
    value: &Value,
) -> Result<String, String> {
    let (mark, root) = parse(text)?;
    let file = root.object_value_or_create().ok_or(NO_OBJECT)?;
    let new_object = || file.append(path[0], CstInputValue::Object(Vec::new()));
    let outer = object(&member(&file, path[0]).unwrap_or_else(new_object), path[0])?;
    let new_array = || outer.append(path[1], CstInputValue::Array(Vec::new()));
    let array = array(&member(&outer, path[1]).unwrap_or_else(new_array), path[1])?;
    let ours = elements(&array, is_ours);
    if !matches!(ours.as_slice(), [one] if one.to_serde_value().as_ref() == Some(value)) {
        ours.into_iter().for_each(CstNode::remove);
        array.append(input(value));
    }
    Ok(format!("{mark}{root}"))
}

/// The elements of the array at `path` that `is_ours` selects.
///
/// # Errors
/// As for [`set_element`].
pub fn get_elements(
    text: &str,
    path: &[&str; 2],
    is_ours: impl Fn(&Value) -> bool,
) -> Result<Vec<Value>, String> {
    let (_, root) = parse(text)?;
    let Some([_, existing]) = find(&root, path)? else {
        return Ok(Vec::new());
    };
    let ours = elements(&array(&existing, path[1])?, is_ours);
    Ok(ours.iter().filter_map(CstNode::to_serde_value).collect())
}

/// The text without the elements of the array at `path` that `is_ours` selects. The array and the object around it go
/// too when they are empty then. `None` if there is no such element.
///
/// # Errors
/// As for [`set_element`].
pub fn remove_elements(
    text: &str,
    path: &[&str; 2],
    is_ours: impl Fn(&Value) -> bool,
) -> Result<Option<String>, String> {
    let (mark, root) = parse(text)?;
    let Some([outer, existing]) = find(&root, path)? else {
        return Ok(None);
    };
    let array = array(&existing, path[1])?;
    let ours = elements(&array, is_ours);
    if ours.is_empty() {
        return Ok(None);
    }
    ours.into_iter().for_each(CstNode::remove);
    if array.elements().is_empty() {
        existing.remove();
        remove_if_empty(outer);
    }
    Ok(Some(format!("{mark}{root}")))
}

/// The two members on the path: the outer one, and the one at `path` in it.
fn find(root: &CstRootNode, path: &[&str; 2]) -> Result<Option<[CstObjectProp; 2]>, String> {
    let Some(file) = root.value() else {
        return Ok(None);
    };
    let file = file.as_object().ok_or(NO_OBJECT)?;
    let Some(outer) = member(&file, path[0]) else {
        return Ok(None);
    };
    let inner = member(&object(&outer, path[0])?, path[1]);
    Ok(inner.map(|inner| [outer, inner]))
}

fn remove_if_empty(member: CstObjectProp) {
    if member
        .object_value()
        .is_some_and(|object| object.properties().is_empty())
    {
        member.remove();
    }
}

fn array(member: &CstObjectProp, name: &str) -> Result<CstArray, String> {
    member
        .array_value()
        .ok_or_else(|| format!("`{name}` is not an array"))
}

fn elements(array: &CstArray, is_ours: impl Fn(&Value) -> bool) -> Vec<CstNode> {
    let selected = |node: &CstNode| node.to_serde_value().is_some_and(|value| is_ours(&value));
    array.elements().into_iter().filter(selected).collect()
}

const NO_OBJECT: &str = "it does not contain a JSON object";

/// The byte order mark, which the parser does not accept, and the tree of the remaining text.
fn parse(text: &str) -> Result<(&str, CstRootNode), String> {
    let json = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mark = &text[..text.len() - json.len()];
    let root = CstRootNode::parse(json, &JSON_WITH_COMMENTS)
        .map_err(|error| format!("it is not valid JSON: {error}"))?;
    Ok((mark, root))
}

/// The last member with this name. JSON readers usually use the last of several.
fn member(object: &CstObject, name: &str) -> Option<CstObjectProp> {
    let is_named = |member: &CstObjectProp| member.decoded_name().as_deref() == Some(name);
    object.properties().into_iter().rev().find(is_named)
}

fn object(member: &CstObjectProp, name: &str) -> Result<CstObject, String> {
    member
        .object_value()
        .ok_or_else(|| format!("`{name}` is not an object"))
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(value) => CstInputValue::Number(value.to_string()),
        Value::String(value) => CstInputValue::String(value.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(input).collect()),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| (name.clone(), input(value)));
            CstInputValue::Object(members.collect())
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
    fn line_ends_and_the_byte_order_mark_stay() {
        let text = "\u{feff}{\r\n  \"servers\": {\r\n    \"a\": 1\r\n  }\r\n}\r\n";
        let (installed, removed) = set_then_remove(text);
        assert!(installed.starts_with('\u{feff}'), "{installed:?}");
        assert_eq!(
            installed.matches('\n').count(),
            installed.matches("\r\n").count(),
            "{installed:?}"
        );
        assert_eq!(removed, text);
    }

    #[test]
    fn a_comment_on_the_lines_of_a_member_goes_with_it_and_others_stay() {
        let text = "{\n  \"servers\": {\n    // of a\n    \"a\": 1, // a\n    // of ctx\n    \"ctx\": 2, // ctx\n    \"b\": 3 // b\n  }\n}\n";
        assert_eq!(
            remove(text, &PATH).unwrap().unwrap(),
            "{\n  \"servers\": {\n    // of a\n    \"a\": 1, // a\n    // of ctx\n    \"b\": 3 // b\n  }\n}\n"
        );
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
