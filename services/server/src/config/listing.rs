//! Prints the settings, for `context-service config`.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::settings::{Setting, Settings, Source};

/// A table for people: first what was set, then the defaults.
#[must_use]
pub fn table(settings: &Settings) -> String {
    let block = |heading: &str, is_default: bool| {
        let listed = settings
            .iter()
            .filter(|setting| (setting.source == Source::Default) == is_default);
        block(heading, &listed.map(row).collect::<Vec<_>>())
    };
    let blocks = [
        block("Set, or found on this machine:", false),
        block("Defaults:", true),
    ];
    let blocks: Vec<String> = blocks.into_iter().flatten().collect();
    blocks.join("\n")
}

/// A heading and its aligned rows; `None` without rows.
fn block(heading: &str, rows: &[[String; 3]]) -> Option<String> {
    // One long value must not push the last column off the screen.
    const MAX_VALUE_WIDTH: usize = 40;
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let (name_width, value_width) = (width(0)?, width(1)?.min(MAX_VALUE_WIDTH));
    let mut text = format!("{heading}\n");
    for [name, value, origin] in rows {
        let line = format!("  {name:name_width$}  {value:value_width$}  {origin}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    Some(text)
}

fn row(setting: &Setting) -> [String; 3] {
    let value = setting.shown().unwrap_or("–").to_owned();
    let origin = match setting.source {
        Source::Default => String::new(),
        Source::Environment => "environment variable".to_owned(),
        Source::Renamed(theirs) => format!("environment variable {theirs} of mcp-context-server"),
        Source::Flag => format!("flag {}", setting.flag()),
        Source::Cache => "downloaded by fetch-model".to_owned(),
    };
    [setting.name.clone(), value, origin]
}

/// The same as JSON. A key is `***` here too: from a hash, a reader of the output could guess passwords.
#[must_use]
pub fn json(settings: &Settings) -> Value {
    let settings: Vec<Value> = settings
        .iter()
        .map(|setting| {
            let (from, variable) = match setting.source {
                Source::Default => ("default", None),
                Source::Environment => ("environment", Some(setting.name.as_str())),
                Source::Renamed(theirs) => ("environment", Some(theirs)),
                Source::Flag => ("flag", None),
                Source::Cache => ("cache", None),
            };
            json!({
                "name": setting.name,
                "value": setting.shown(),
                "secret": setting.secret().is_some(),
                "from": from,
                "variable": variable,
            })
        })
        .collect();
    json!({ "settings": settings })
}
