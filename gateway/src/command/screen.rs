//! What a person sees: tables, ages and JSON.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};

use context_model::Timestamp;
use serde_json::Value;

use super::failure::Failure;
use super::inert::{inert, inert_json, one_line};
use crate::clock::now_micros;

/// Longest cell of a table on a terminal, in characters, except in the last column: an artifact's id has 36.
const MAX_CELL: usize = 36;
/// Longest cell of the last column, in characters. A narrow terminal shortens it further.
const MAX_TEXT: usize = 300;
/// Fewest characters that the last column has, however narrow the terminal is.
const MIN_TEXT: usize = 20;

/// Where replies are printed.
#[derive(Debug)]
pub struct Screen {
    /// Whether replies are printed as JSON.
    pub json: bool,
    /// Whether stdout is a terminal.
    pub is_terminal: bool,
    has_colours: bool,
    /// Columns of the terminal.
    width: Option<usize>,
    /// The current time, in microseconds since 1970.
    now: i64,
}

/// The side on which the cells of a column are aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Texts.
    Left,
    /// Numbers.
    Right,
}

impl Screen {
    /// A screen for stdout. Finds out whether it is a terminal, and how wide it is.
    #[must_use]
    pub fn new(json: bool) -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let width = rustix::termios::tcgetwinsize(&stdout)
            .ok()
            .map(|size| usize::from(size.ws_col))
            .filter(|columns| is_terminal && *columns > 0);
        Self {
            json,
            is_terminal,
            has_colours: is_terminal && !is_dumb && !is_set("NO_COLOR"),
            width,
            now: now_micros(),
        }
    }

    /// Prints a text and ends its last line.
    ///
    /// # Errors
    /// Stdout cannot be written.
    pub fn print(&self, text: &str) -> Result<(), Failure> {
        let mut bytes = text.as_bytes().to_vec();
        if !text.is_empty() && !text.ends_with('\n') {
            bytes.push(b'\n');
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(&bytes)?;
        Ok(stdout.flush()?)
    }

    /// Prints a text exactly, for a program or a file. On a terminal its control characters are escaped.
    ///
    /// # Errors
    /// As for [`print`](Self::print).
    pub fn print_exactly(&self, text: &str) -> Result<(), Failure> {
        if self.is_terminal {
            return self.print(&inert(text));
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        Ok(stdout.flush()?)
    }

    /// Prints JSON: indented on a terminal, else on one line.
    ///
    /// # Errors
    /// As for [`print`](Self::print).
    pub fn print_json(&self, value: &Value) -> Result<(), Failure> {
        let text = if self.is_terminal {
            format!("{value:#}")
        } else {
            value.to_string()
        };
        self.print(&inert_json(&text))
    }

    /// Prints JSON on one line.
    ///
    /// # Errors
    /// As for [`print`](Self::print).
    pub fn print_json_line(&self, value: &Value) -> Result<(), Failure> {
        self.print(&inert_json(&value.to_string()))
    }

    /// The time since a timestamp of a reply, in one unit: seconds, minutes, hours (below 2 days) or days (below 60
    /// days). For an older timestamp, its date.
    #[must_use]
    pub fn age(&self, moment: &Value) -> String {
        let text = moment.as_str().unwrap_or_default();
        let Ok(Timestamp(then)) = Timestamp::parse(text, false) else {
            return inert(text);
        };
        let seconds = (self.now.saturating_sub(then) / 1_000_000).max(0);
        match seconds {
            0..60 => format!("{seconds} s"),
            60..3600 => format!("{} min", seconds / 60),
            3600..172_800 => format!("{} h", seconds / 3600),
            172_800..5_184_000 => format!("{} d", seconds / 86_400),
            _ => text.get(..10).unwrap_or(text).to_owned(),
        }
    }

    /// The text in bold, if the terminal shows that.
    #[must_use]
    pub fn bold(&self, text: &str) -> String {
        if self.has_colours {
            format!("\u{1b}[1m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// A table. Cells may hold any text: they are shown on one line. The last column is cut to 300 characters. On a
    /// terminal the other columns are cut to 36, and a last column of texts to the remaining width, but not below 20.
    #[must_use]
    pub fn table(&self, columns: &[(&str, Side)], rows: Vec<Vec<String>>) -> String {
        let last = columns.len().saturating_sub(1);
        let mut rows = rows;
        for (index, cell) in rows.iter_mut().flat_map(|row| row.iter_mut().enumerate()) {
            let most = match self.width {
                Some(_) if index < last => MAX_CELL,
                _ if index == last => MAX_TEXT,
                _ => usize::MAX,
            };
            *cell = cut(&one_line(cell), most);
        }
        let chars = |text: &str| text.chars().count();
        let widths: Vec<usize> = columns
            .iter()
            .enumerate()
            .map(|(index, (title, _))| {
                let cells = rows.iter().filter_map(|row| row.get(index));
                cells
                    .map(|cell| chars(cell))
                    .max()
                    .unwrap_or(0)
                    .max(chars(title))
            })
            .collect();
        let before: usize = widths.iter().take(last).map(|width| width + 2).sum();
        let last_width = self
            .width
            .map(|width| width.saturating_sub(before).max(MIN_TEXT));
        let line = |cells: &[String]| {
            let mut line = String::new();
            for (index, cell) in cells.iter().enumerate() {
                let width = widths[index];
                let _ = match (columns[index].1, index == last) {
                    (Side::Right, _) => write!(line, "{cell:>width$}"),
                    (Side::Left, true) => {
                        write!(line, "{}", cut(cell, last_width.unwrap_or(MAX_TEXT)))
                    }
                    (Side::Left, false) => write!(line, "{cell:width$}"),
                };
                if index < last {
                    line.push_str("  ");
                }
            }
            line.trim_end().to_owned()
        };
        let titles: Vec<String> = columns
            .iter()
            .map(|(title, _)| (*title).to_owned())
            .collect();
        let mut text = self.bold(&line(&titles));
        for row in &rows {
            text.push('\n');
            text.push_str(&line(row));
        }
        text
    }
}

/// A string member of a reply, or "".
#[must_use]
pub fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// A timestamp of a reply, to the second.
#[must_use]
pub fn moment(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.get(..19)
        .map_or_else(|| inert(text), |seconds| format!("{}Z", inert(seconds)))
}

/// The strings of a list in a reply, joined by commas. Their control characters are not escaped.
#[must_use]
pub fn listed(value: &Value) -> String {
    let items = value.as_array().into_iter().flatten();
    items
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    let mut shown: String = text.chars().take(most.saturating_sub(1)).collect();
    shown.push('…');
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn screen(width: Option<usize>, has_colours: bool) -> Screen {
        Screen {
            json: false,
            is_terminal: width.is_some(),
            has_colours,
            width,
            now: Timestamp::parse("2026-03-01", false).unwrap().micros(),
        }
    }

    #[test]
    fn the_id_of_an_artifact_is_whole_on_a_terminal() {
        let id = "0190a2f4-7c1e-7d3a-9b5c-2f6e8d4a1b3c";
        let columns = [("ID", Side::Left), ("TITLE", Side::Left)];
        let rows = vec![vec![id.to_owned(), "Plan".to_owned()]];
        assert!(screen(Some(80), false).table(&columns, rows).contains(id));
    }

    #[test]
    fn a_table_fits_the_terminal_and_is_whole_elsewhere() {
        let columns = [("ID", Side::Right), ("TEXT", Side::Left)];
        let rows = || {
            vec![
                vec!["7".to_owned(), "short".to_owned()],
                vec!["1234".to_owned(), "two\nlines of a long text".to_owned()],
            ]
        };
        assert_eq!(
            screen(None, false).table(&columns, rows()),
            "  ID  TEXT\n   7  short\n1234  two lines of a long text"
        );
        let narrow = screen(Some(26), true).table(&columns, rows());
        assert_eq!(
            narrow,
            "\u{1b}[1m  ID  TEXT\u{1b}[0m\n   7  short\n1234  two lines of a long…"
        );
    }

    #[test]
    fn an_age_has_one_unit_and_becomes_a_date() {
        let screen = screen(None, false);
        for (moment, shown) in [
            ("2026-02-28T23:59:30.000000Z", "30 s"),
            ("2026-02-28T23:18:00.000000Z", "42 min"),
            ("2026-02-28T01:00:00.000000Z", "23 h"),
            ("2026-02-20T00:00:00.000000Z", "9 d"),
            ("2025-02-20T00:00:00.000000Z", "2025-02-20"),
            ("2026-03-02T00:00:00.000000Z", "0 s"),
        ] {
            assert_eq!(screen.age(&json!(moment)), shown);
        }
    }
}
