//! Scans the raw JSON of a message before anything is built from it.
//!
//! A parsed value takes a few hundred bytes even if its text takes two, so a message within the
//! size limit could still exhaust the memory. And an integer beyond 64 bits becomes a float when it
//! is parsed, so a different number would be stored. Both can only be detected in the text. The
//! scan does not check syntax; the parser does.

use context_model::{RESERVED_KEY, ReservedKey};

use crate::envelope::MAX_ID;

/// Maximum number of values in one message. The largest allowed metadata holds fewer.
const MAX_VALUES: usize = 1_000_000;
/// A number of more characters is stored only in part. The longest 64-bit integer has 20.
const MAX_NUMBER: usize = 40;

/// The scan of one message, fed piece by piece.
#[derive(Debug, Default)]
pub struct Scan {
    max_bytes: usize,
    bytes: usize,
    values: usize,
    /// Whether the message or the innermost list or object has begun and has no value yet.
    expects_first: bool,
    depth: usize,
    in_string: bool,
    escaped: bool,
    number: Vec<u8>,
    /// The first integer beyond 64 bits.
    wide: Option<String>,
    /// The first bytes of the current top-level key: enough to compare it with `id`.
    key: Vec<u8>,
    in_key: bool,
    expects_key: bool,
    id: Vec<u8>,
    in_id: bool,
    is_array: bool,
    reserved: ReservedKey,
}

impl Scan {
    /// A scan that refuses messages of more than `max_bytes`.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            expects_first: true,
            ..Self::default()
        }
    }

    /// The scan of a JSON value that stands in a string or on a command line.
    #[must_use]
    pub fn of_value(text: &str) -> Self {
        let mut scan = Self::new(usize::MAX);
        // A number is only judged inside a structure, and when it has ended.
        for piece in [b"[".as_slice(), text.as_bytes(), b"]"] {
            scan.feed(piece);
        }
        scan
    }

    /// Takes the next piece of the message.
    pub fn feed(&mut self, piece: &[u8]) {
        self.bytes = self.bytes.saturating_add(piece.len());
        self.reserved.read(piece);
        let mut rest = piece;
        while let Some((&byte, after)) = rest.split_first() {
            if self.in_string && !self.escaped && !self.in_key && !self.in_id {
                // Fast path: most bytes of a large message are inside strings.
                let plain = rest
                    .iter()
                    .position(|byte| matches!(byte, b'"' | b'\\'))
                    .unwrap_or(rest.len());
                if plain > 0 {
                    rest = &rest[plain..];
                    continue;
                }
            }
            self.byte(byte);
            rest = after;
        }
    }

    fn byte(&mut self, byte: u8) {
        if self.in_string {
            self.string_byte(byte);
            return;
        }
        match byte {
            b'-' | b'+' | b'.' | b'0'..=b'9' | b'e' | b'E' if self.depth > 0 => {
                if self.number.len() <= MAX_NUMBER {
                    self.number.push(byte);
                } else if matches!(byte, b'.' | b'e' | b'E') {
                    // The part that is stored must show that the number is not an integer.
                    self.number[MAX_NUMBER] = byte;
                }
            }
            _ => self.end_number(),
        }
        if self.expects_first && !byte.is_ascii_whitespace() {
            self.expects_first = false;
            if !matches!(byte, b'}' | b']') {
                self.is_array |= self.values == 0 && byte == b'[';
                self.values += 1;
            }
        }
        match byte {
            b'{' | b'[' => {
                self.expects_first = true;
                self.depth += 1;
                self.expects_key = self.depth == 1 && byte == b'{';
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.in_id &= self.depth > 0;
            }
            b',' => {
                self.values += 1;
                if self.depth == 1 {
                    self.expects_key = true;
                    self.in_id = false;
                }
            }
            b':' if self.depth == 1 => {
                self.in_id = self.key == b"id" && self.id.is_empty();
                self.key.clear();
                return;
            }
            b'"' => {
                self.in_string = true;
                self.in_key = self.depth == 1 && self.expects_key;
                self.expects_key = false;
                self.key.clear();
            }
            _ => {}
        }
        self.collect_id(byte);
    }

    fn string_byte(&mut self, byte: u8) {
        self.collect_id(byte);
        if self.escaped {
            self.escaped = false;
        } else if byte == b'\\' {
            self.escaped = true;
        } else if byte == b'"' {
            self.in_string = false;
            self.in_key = false;
            return;
        }
        if self.in_key && self.key.len() <= 2 {
            self.key.push(byte);
        }
    }

    fn collect_id(&mut self, byte: u8) {
        if self.in_id && self.id.len() <= MAX_ID {
            self.id.push(byte);
        }
    }

    fn end_number(&mut self) {
        if self.number.len() >= 19
            && self.wide.is_none()
            && !self
                .number
                .iter()
                .any(|byte| matches!(byte, b'.' | b'e' | b'E'))
        {
            let text = String::from_utf8_lossy(&self.number);
            if text.parse::<i64>().is_err() && text.parse::<u64>().is_err() {
                self.wide = Some(text.into_owned());
            }
        }
        self.number.clear();
    }

    /// Number of values so far. Each counts once, a list or an object like any other.
    #[must_use]
    pub fn values(&self) -> usize {
        self.values
    }

    /// Why the message must not be parsed, as a sentence; `None` if nothing was found so far.
    /// Feeding more can turn `None` into a refusal.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        if self.is_too_large() {
            Some(self.too_large())
        } else {
            self.flaw().map(|flaw| format!("the message {flaw}"))
        }
    }

    /// What is wrong with the values so far, as the end of a sentence whose subject holds them.
    #[must_use]
    pub fn flaw(&self) -> Option<String> {
        if self.values > MAX_VALUES {
            return Some(format!("contains more than {MAX_VALUES} values; split it"));
        }
        if self.reserved.is_found() {
            return Some(format!("has the reserved key `{RESERVED_KEY}`"));
        }
        self.wide.as_ref().map(|number| {
            format!("holds the integer {number}; integers must lie within -9223372036854775808 to 9223372036854775807")
        })
    }

    /// Whether the message is larger than allowed.
    #[must_use]
    pub const fn is_too_large(&self) -> bool {
        self.bytes > self.max_bytes
    }

    /// The error sentence for a message that is larger than allowed.
    #[must_use]
    pub fn too_large(&self) -> String {
        format!(
            "the message is larger than {} MiB; send fewer or smaller images and entries at once",
            self.max_bytes >> 20
        )
    }

    /// Whether the message is an array: a batch, which has no id of its own.
    #[must_use]
    pub const fn is_array(&self) -> bool {
        self.is_array
    }

    /// The JSON-RPC id, if the scanned part has one that can be repeated: a string or an integer.
    #[must_use]
    pub fn id(&self) -> Option<serde_json::Value> {
        let id = (self.id.len() <= MAX_ID)
            .then(|| serde_json::from_slice::<serde_json::Value>(&self.id).ok())??;
        (id.is_string() || id.is_i64() || id.is_u64()).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scan(text: &str) -> Scan {
        let mut whole = Scan::new(1024 * 1024 * 1024);
        whole.feed(text.as_bytes());
        // The findings do not depend on how the message is cut.
        for size in [1, 2, 7] {
            let mut pieces = Scan::new(1024 * 1024 * 1024);
            text.as_bytes()
                .chunks(size)
                .for_each(|piece| pieces.feed(piece));
            assert_eq!(
                (pieces.refusal(), pieces.id(), pieces.values()),
                (whole.refusal(), whole.id(), whole.values()),
                "{text}"
            );
        }
        whole
    }

    #[test]
    fn ordinary_messages_pass() {
        for text in [
            "",
            "not json",
            r#"{"id":1,"params":{"n":[9223372036854775807,-9223372036854775808,18446744073709551615,1e300,0.12345678901234567890123]}}"#,
            r#"{"text":"18446744073709551616 \" 99999999999999999999999"}"#,
            r#"{"n":[100000000000000000000000000000000000000000000000000.0,100000000000000000000000000000000000000000000000000e+1]}"#,
            "\"unfinished 99999999999999999999999",
        ] {
            assert_eq!(scan(text).refusal(), None, "{text}");
        }
    }

    #[test]
    fn integers_beyond_64_bits_are_refused_with_their_digits() {
        for text in [
            r#"{"n":18446744073709551616}"#,
            r#"{"a":[1,18446744073709551616 ]}"#,
        ] {
            assert!(
                scan(text)
                    .refusal()
                    .unwrap()
                    .contains("18446744073709551616")
            );
        }
        assert!(scan(r#"{"n":-9223372036854775809}"#).refusal().is_some());
    }

    #[test]
    fn each_value_counts_once() {
        for (text, values) in [
            ("", 0),
            ("5", 1),
            ("[]", 1),
            (" { } ", 1),
            ("[[ ], {}]", 3),
            ("[1, 2]", 3),
            (r#"{"a": {}, "b": [{"c": 1}, "[,{"]}"#, 6),
        ] {
            assert_eq!(scan(text).values(), values, "{text}");
        }
        let empty = |count: usize| format!("[{}{{}}]", "{},".repeat(count - 1));
        assert_eq!(scan(&empty(MAX_VALUES - 1)).refusal(), None);
        assert!(scan(&empty(MAX_VALUES)).refusal().is_some());
    }

    #[test]
    fn too_many_values_and_too_many_bytes_are_refused() {
        assert_eq!(
            scan(&format!("[{}0]", "0,".repeat(MAX_VALUES - 2))).refusal(),
            None
        );
        assert!(
            scan(&format!("[{}0]", "0,".repeat(MAX_VALUES + 1)))
                .refusal()
                .unwrap()
                .contains("values")
        );
        assert_eq!(
            scan(&format!("\"{}\"", ",".repeat(MAX_VALUES + 1))).refusal(),
            None
        );
        let mut small = Scan::new(4);
        small.feed(b"12");
        small.feed(b"34");
        assert_eq!(small.refusal(), None);
        small.feed(b"5");
        assert!(small.refusal().is_some());
    }

    #[test]
    fn a_value_alone_is_judged_as_within_a_message() {
        let wide = Scan::of_value("18446744073709551616").flaw().unwrap();
        assert!(wide.starts_with("holds the integer 18446744073709551616;"));
        let many = Scan::of_value(&format!("[{}0]", "0,".repeat(MAX_VALUES)));
        assert!(many.flaw().unwrap().contains("values"));
        for text in [
            "5",
            "-9223372036854775808",
            "\"18446744073709551616\"",
            "{\"a\":1e300}",
        ] {
            assert_eq!(Scan::of_value(text).flaw(), None, "{text}");
        }
    }

    #[test]
    fn an_array_is_told_from_an_object_that_holds_one() {
        assert!(scan(" [{}]").is_array());
        assert!(!scan(r#"{"params":[1]}"#).is_array());
        assert!(!scan("5").is_array());
    }

    #[test]
    fn the_id_is_found_wherever_it_stands() {
        for (text, id) in [
            (r#"{"id":7,"method":"x"}"#, Some(json!(7))),
            (
                r#"{"jsonrpc":"2.0","params":{"id":1,"x":["id",{"id":2}]},"id" : "a\"b" }"#,
                Some(json!("a\"b")),
            ),
            (r#"{"method":"id","params":"id","x":3}"#, None),
            (r#"{"id":null}"#, None),
            (r#"{"id":{"id":1}}"#, None),
            (r#"{"id":1.5}"#, None),
            (r#"[{"id":1}]"#, None),
        ] {
            assert_eq!(scan(text).id(), id, "{text}");
        }
        let long = "x".repeat(MAX_ID - 2);
        assert_eq!(
            scan(&format!(r#"{{"id":"{long}"}}"#)).id(),
            Some(json!(long))
        );
        assert_eq!(scan(&format!(r#"{{"id":"{long}x"}}"#)).id(), None);
    }
}
