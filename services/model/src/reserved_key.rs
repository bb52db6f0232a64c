/// A key that JSON may not have. serde_json parses the string after it as JSON (feature `raw_value`), so the values in
/// that string would take memory without having been counted.
pub const RESERVED_KEY: &str = "$serde_json::private::RawValue";

/// Looks for the key [`RESERVED_KEY`] in JSON text that is read in pieces. Escapes are decoded.
#[derive(Debug, Default)]
pub struct ReservedKey {
    in_string: bool,
    escaped: bool,
    /// The current string with its opening quote, while it may still be the key.
    string: Vec<u8>,
    /// The last string is the key if a colon follows.
    may_be_key: bool,
    is_found: bool,
}

impl ReservedKey {
    /// The length of the key if each of its characters is written as `\u0000`, with the opening quote.
    const MAX_BYTES: usize = 6 * RESERVED_KEY.len() + 1;

    /// Reads the next bytes of the text.
    pub fn read(&mut self, json: &[u8]) {
        let mut rest = json;
        while let Some((&byte, after)) = rest.split_first() {
            if self.in_string && !self.escaped && self.string.is_empty() {
                // Most bytes of a large text are in strings.
                let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
                let plain = plain.unwrap_or(rest.len());
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
        if !self.in_string {
            match byte {
                b'"' => {
                    self.in_string = true;
                    self.may_be_key = false;
                    self.string.push(byte);
                }
                b':' => self.is_found |= std::mem::take(&mut self.may_be_key),
                b' ' | b'\t' | b'\n' | b'\r' => {}
                _ => self.may_be_key = false,
            }
            return;
        }
        if !self.string.is_empty() {
            let is_possible = match self.string.len() {
                1 => matches!(byte, b'$' | b'\\'),
                bytes => bytes < Self::MAX_BYTES || byte == b'"',
            };
            if is_possible {
                self.string.push(byte);
            } else {
                self.string.clear();
            }
        }
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => {
                self.in_string = false;
                self.may_be_key = !self.string.is_empty()
                    && serde_json::from_slice::<String>(&self.string)
                        .is_ok_and(|text| text == RESERVED_KEY);
                self.string.clear();
            }
            _ => {}
        }
    }

    /// Whether the text so far has the key.
    #[must_use]
    pub const fn is_found(&self) -> bool {
        self.is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_found_however_it_is_written_and_cut() {
        let is_found = |json: &str, size| {
            let mut scan = ReservedKey::default();
            json.as_bytes()
                .chunks(size)
                .for_each(|piece| scan.read(piece));
            scan.is_found()
        };
        let escaped: String = RESERVED_KEY
            .chars()
            .map(|c| format!("\\u{:04x}", u32::from(c)))
            .collect();
        for size in [1, 7, 1000] {
            for key in [
                RESERVED_KEY,
                &escaped,
                "\\u0024serde_json::private::RawValue",
            ] {
                assert!(is_found(
                    &format!("{{\"a\\\\\": {{\"{key}\" : \"[1]\"}}}}"),
                    size
                ));
                assert!(!is_found(&format!("{{\"a\": \"{key}\", \"b\": 1}}"), size));
            }
            for other in [
                "$serde_json",
                "$serde_json::private::RawValue2",
                "\\\\",
                "$\\\"",
            ] {
                let json = format!("[\"{other}\", \"x{RESERVED_KEY}\", \"{escaped}1\"]");
                assert!(!is_found(&json, size), "{other}");
            }
        }
    }
}
