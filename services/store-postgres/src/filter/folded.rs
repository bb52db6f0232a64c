//! Metadata in the form that conditions compare.

use context_model::{JsonObject, fold};
use serde_json::{Number, Value};

/// Writes compact JSON. Every string value is folded, and numbers are written so that PostgreSQL compares them as the
/// contract requires.
///
/// jsonb stores a number as the decimal that was written. From 2^53 on, the shortest decimal of a double may differ
/// from its exact value, and a comparison with an integer could see the difference. Therefore doubles from 2^53 to 2^63,
/// and their negatives, are written exactly. No 64-bit integer lies beyond, so larger doubles keep the shortest decimal.
pub(crate) fn folded_json(object: &JsonObject) -> String {
    let mut out = String::new();
    write_object(object, &mut out);
    out
}

/// Metadata is at most 64 levels deep, which bounds the recursion.
fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number_json(number)),
        Value::String(text) => write_string(&fold(text), out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(object) => write_object(object, out),
    }
}

fn write_object(object: &JsonObject, out: &mut String) {
    out.push('{');
    for (i, (key, value)) in object.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_string(key, out);
        out.push(':');
        write(value, out);
    }
    out.push('}');
}

fn write_string(text: &str, out: &mut String) {
    out.push_str(&Value::String(text.to_owned()).to_string());
}

fn number_json(number: &Number) -> String {
    match (number.as_i64(), number.as_f64()) {
        (None, Some(float)) => float_json(float),
        _ => number.to_string(),
    }
}

/// The decimal by which PostgreSQL compares a finite double.
pub(super) fn float_json(float: f64) -> String {
    const TWO_TO_53: f64 = 9_007_199_254_740_992.0;
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    if (TWO_TO_53..=TWO_TO_63).contains(&float.abs()) {
        format!("{float:.0}")
    } else {
        Value::from(float).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strings_are_folded_and_keys_are_not() {
        let object = json!({"Key": "ÄB\"", "list": ["X", {"Y": "Z"}], "n": null, "b": true});
        assert_eq!(
            folded_json(object.as_object().unwrap()),
            r#"{"Key":"äb\"","list":["x",{"Y":"z"}],"n":null,"b":true}"#
        );
    }

    #[test]
    fn large_floats_are_written_out() {
        assert_eq!(
            float_json(9_223_372_036_854_775_808.0),
            "9223372036854775808"
        );
        assert_eq!(
            float_json(-9_223_372_036_854_774_784.0),
            "-9223372036854774784"
        );
        assert_eq!(float_json(9_007_199_254_740_994.0), "9007199254740994");
        assert_eq!(float_json(0.1), "0.1");
        assert_eq!(float_json(1e300), "1e+300");
    }
}
