//! Placeholders in the values of settings.

/// Replaces `${VAR}` and `${VAR:-default}`, which some MCP clients do not expand. `lookup` returns the value of a
/// variable. An unset or empty variable is replaced by its default, or by nothing if it has none.
#[must_use]
pub fn expand_variables(value: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else {
            break;
        };
        let inner = &rest[start + 2..start + length];
        let (name, default) = inner.split_once(":-").unwrap_or((inner, ""));
        // A variable that still holds a placeholder was never set: the client copied it literally.
        let found = lookup(name).filter(|found| !found.is_empty() && !found.contains("${"));
        out.push_str(&rest[..start]);
        out.push_str(found.as_deref().unwrap_or(default));
        rest = &rest[start + length + 1..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_expanded_and_unset_ones_take_their_default() {
        let lookup = |name: &str| match name {
            "SET" => Some("value".to_owned()),
            "LITERAL" => Some("${LITERAL}".to_owned()),
            _ => None,
        };
        for (given, expected) in [
            ("plain", "plain"),
            ("${SET}", "value"),
            ("a${SET}b${UNSET:-c}", "avaluebc"),
            ("${UNSET}", ""),
            ("${LITERAL:-x}", "x"),
            ("${open", "${open"),
        ] {
            assert_eq!(expand_variables(given, lookup), expected, "{given}");
        }
    }
}
