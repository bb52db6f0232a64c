//! Changes one table of a TOML file and leaves the rest of the file unchanged.

use serde_json::Value as Json;
use toml_edit::{Array, DocumentMut, Item, Table, TableLike, Value};

/// The text with the table at `path` set to `entry`. Missing tables on the path are created.
///
/// # Errors
/// A sentence if the text is not TOML, or if a value on the path is not a table.
pub fn set(text: &str, path: &[&str; 2], entry: &Json) -> Result<String, String> {
    let mut file = parse(text)?;
    let new_table = || {
        let mut table = Table::new();
        // Only `[servers.name]` is written.
        table.set_implicit(true);
        Item::Table(table)
    };
    let servers = file.entry(path[0]).or_insert_with(new_table);
    let servers = table(servers, path[0])?;
    let entry = table_of(entry);
    let same = servers
        .get(path[1])
        .is_some_and(|existing| plain(existing) == plain(&Item::Table(entry.clone())));
    if !same {
        servers.insert(path[1], Item::Table(entry));
    }
    Ok(with_line_ends_of(text, file.to_string()))
}

/// The table at `path`. `None` if there is none.
///
/// # Errors
/// As for [`set`].
pub fn get(text: &str, path: &[&str; 2]) -> Result<Option<Json>, String> {
    let mut file = parse(text)?;
    let Some(servers) = file.get_mut(path[0]) else {
        return Ok(None);
    };
    Ok(table(servers, path[0])?.get(path[1]).map(json_of))
}

/// The text without the table at `path`. `None` if there is none.
///
/// # Errors
/// As for [`set`].
pub fn remove(text: &str, path: &[&str; 2]) -> Result<Option<String>, String> {
    let mut file = parse(text)?;
    let Some(servers) = file.get_mut(path[0]) else {
        return Ok(None);
    };
    let servers = table(servers, path[0])?;
    if servers.remove(path[1]).is_none() {
        return Ok(None);
    }
    if servers.is_empty() {
        // A `[servers]` header that the user wrote stays.
        let is_ours = file
            .get(path[0])
            .and_then(Item::as_table)
            .is_some_and(Table::is_implicit);
        if is_ours {
            file.remove(path[0]);
        }
    }
    Ok(Some(with_line_ends_of(text, file.to_string())))
}

/// The text without those keys of the table at `path` that `is_ours` selects. The tables around them go too when they
/// are empty then. `None` if there is no such key.
///
/// # Errors
/// As for [`set`].
pub fn remove_keys(
    text: &str,
    path: &[&str; 2],
    is_ours: impl Fn(&str) -> bool,
) -> Result<Option<String>, String> {
    let mut file = parse(text)?;
    let Some(outer) = file.get_mut(path[0]) else {
        return Ok(None);
    };
    let outer = table(outer, path[0])?;
    let Some(inner) = outer.get_mut(path[1]) else {
        return Ok(None);
    };
    let inner = table(inner, path[1])?;
    let keys = inner.iter().map(|(name, _)| name.to_owned());
    let keys: Vec<String> = keys.filter(|name| is_ours(name)).collect();
    if keys.is_empty() {
        return Ok(None);
    }
    for key in &keys {
        inner.remove(key);
    }
    if inner.is_empty() {
        outer.remove(path[1]);
        if outer.is_empty() {
            file.remove(path[0]);
        }
    }
    Ok(Some(with_line_ends_of(text, file.to_string())))
}

fn parse(text: &str) -> Result<DocumentMut, String> {
    text.parse()
        .map_err(|error: toml_edit::TomlError| format!("it is not valid TOML: {}", error.message()))
}

/// `toml_edit` writes every line end as a line feed.
fn with_line_ends_of(text: &str, written: String) -> String {
    let is_crlf =
        text.contains("\r\n") && text.matches('\n').count() == text.matches("\r\n").count();
    if is_crlf {
        written.replace('\n', "\r\n")
    } else {
        written
    }
}

fn table<'i>(item: &'i mut Item, name: &str) -> Result<&'i mut dyn TableLike, String> {
    item.as_table_like_mut()
        .ok_or_else(|| format!("`{name}` is not a table"))
}

fn table_of(entry: &Json) -> Table {
    let mut table = Table::new();
    for (name, value) in entry.as_object().into_iter().flatten() {
        let item = match value {
            Json::Object(_) => Item::Table(table_of(value)),
            value => Item::Value(value_of(value)),
        };
        table.insert(name, item);
    }
    table
}

/// A value of an entry: a text, or a list of texts.
fn value_of(value: &Json) -> Value {
    match value {
        Json::Array(values) => Value::Array(values.iter().map(value_of).collect::<Array>()),
        Json::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    }
}

/// The opposite of [`table_of`]. Values of other types than `table_of` writes become strings.
fn json_of(item: &Item) -> Json {
    let text = |value: &Value| match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    };
    match item {
        Item::Value(Value::Array(values)) => values.iter().map(text).collect(),
        Item::Value(Value::InlineTable(_)) | Item::Table(_) => {
            let members = item.as_table_like().into_iter().flat_map(TableLike::iter);
            let members = members.map(|(name, item)| (name.to_owned(), json_of(item)));
            Json::Object(members.collect())
        }
        Item::Value(value) => Json::String(text(value)),
        Item::None | Item::ArrayOfTables(_) => Json::Null,
    }
}

/// The table without formatting, for comparison. `None` if the item is not a table.
fn plain(item: &Item) -> Option<String> {
    let mut table = item.as_table_like()?.iter().map(|(name, item)| {
        let value = match plain(item) {
            Some(table) => table,
            None => item
                .clone()
                .into_value()
                .map(|value| value.decorated("", "").to_string())
                .unwrap_or_default(),
        };
        format!("{name}={value}")
    });
    let mut members: Vec<String> = table.by_ref().collect();
    members.sort();
    Some(members.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PATH: [&str; 2] = ["mcp_servers", "context"];

    fn entry() -> Json {
        json!({"command": "/opt/it's \"here\"/context-gateway", "args": ["stdio"], "env": {"DB_PATH": "/data/ü.db"}})
    }

    #[test]
    fn a_table_is_added_and_taken_out_without_a_trace() {
        for text in [
            "",
            "model = \"x\" # mine\n",
            "# head\nmodel = 'x'\n\n[mcp_servers.other]\ncommand = \"y\" # keep\nargs = [\n  \"a\", # a\n]\n\n[profiles.p]\nmodel = \"z\"\n",
            "[mcp_servers]\n\n[tui]\nx = 1\n",
            "mcp_servers.other = { command = \"y\" }\r\nz = 1\r\n",
        ] {
            let installed = set(text, &PATH, &entry()).unwrap();
            let read: DocumentMut = installed.parse().unwrap();
            let context = &read["mcp_servers"]["context"];
            assert_eq!(
                context["command"].as_str(),
                entry()["command"].as_str(),
                "{installed}"
            );
            assert_eq!(context["args"][0].as_str(), Some("stdio"));
            assert_eq!(context["env"]["DB_PATH"].as_str(), Some("/data/ü.db"));
            assert_eq!(set(&installed, &PATH, &entry()).unwrap(), installed);
            assert_eq!(remove(&installed, &PATH).unwrap().unwrap(), text);
        }
    }

    #[test]
    fn another_entry_of_the_name_is_replaced() {
        let text = "[mcp_servers.context]\ncommand = \"old\"\n\n[mcp_servers.context.env]\nX = \"1\"\n\n[z]\n";
        let installed = set(text, &PATH, &json!({"url": "http://127.0.0.1:7421/mcp"})).unwrap();
        assert!(
            !installed.contains("old") && !installed.contains("X ="),
            "{installed}"
        );
        assert!(
            installed.contains("url = \"http://127.0.0.1:7421/mcp\"") && installed.contains("[z]")
        );
    }

    #[test]
    fn keys_are_removed_and_then_the_tables_without_any() {
        let before = "model = \"m\"\n";
        let mine = "\n[hooks.state.\"/p:stop:0:0\"]\ntrusted_hash = \"x\"\n";
        let other = "\n[hooks.state.\"/q:stop:0:0\"]\ntrusted_hash = \"x\"\n";
        let remove = |text: &str| {
            remove_keys(text, &["hooks", "state"], |name| name.starts_with("/p:")).unwrap()
        };
        let all = format!("{before}\n[hooks.state]\n{mine}");
        assert_eq!(remove(&all).as_deref(), Some(before));
        let with_other = format!("{before}\n[hooks.state]\n{other}");
        assert_eq!(
            remove(&format!("{with_other}{mine}")),
            Some(with_other.clone())
        );
        for text in ["", before, &with_other, "[hooks]\nx = 1\n"] {
            assert_eq!(remove(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_not_toml_is_refused_and_a_missing_entry_is_not_removed() {
        for text in [
            "[mcp_servers",
            "mcp_servers = 1",
            "{}",
            "[[mcp_servers]]\nx = 1\n",
        ] {
            assert!(set(text, &PATH, &entry()).is_err(), "{text}");
        }
        for text in ["", "x = 1\n", "[mcp_servers.other]\n"] {
            assert_eq!(remove(text, &PATH).unwrap(), None, "{text}");
        }
    }
}
