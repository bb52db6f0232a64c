//! Text for the terminal.

use std::io::{self, Write as _};
use std::path::Path;

use serde_json::Value;

/// The value as indented JSON.
pub fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// A command line that a shell parses back into these arguments.
pub fn shell_line(arguments: &[String]) -> String {
    let quoted = arguments.iter().map(|argument| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
        if !argument.is_empty() && argument.bytes().all(plain) {
            argument.clone()
        } else {
            format!("'{}'", argument.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// The path as text.
///
/// # Errors
/// A sentence if it is not UTF-8, because no configuration file can hold it then.
pub fn utf8(path: &Path) -> Result<&str, String> {
    path.to_str()
        .ok_or_else(|| format!("the path {} is not UTF-8", path.display()))
}

/// Prints the text and a line end to stdout. A reader that closes early, such as `head`, is not an error.
pub fn say(text: &str) -> Result<(), String> {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}
