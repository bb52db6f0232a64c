//! Counts the values of JSON text before it is parsed.

/// Counts the values of a JSON text that is read in pieces. A list of one-digit numbers grows thirtyfold when it is
/// parsed, and only then is it found to be too large for metadata.
#[derive(Debug, Default)]
pub struct JsonValues {
    count: usize,
    in_string: bool,
    escaped: bool,
}

impl JsonValues {
    /// Reads the next bytes of the text.
    pub fn read(&mut self, json: &[u8]) {
        for byte in json {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                b',' if !self.in_string => self.count += 1,
                b'[' | b'{' if !self.in_string => self.count += 2,
                _ => {}
            }
        }
    }

    /// The values inside lists and objects so far, and one more for each list and each object, which has memory of its
    /// own. An empty one counts two more.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_and_strings_are_not_looked_into() {
        let count = |json: &[u8], size| {
            let mut values = JsonValues::default();
            json.chunks(size).for_each(|piece| values.read(piece));
            values.count()
        };
        for size in [1, 2, 100] {
            assert_eq!(count(br#"{"a": [1, 2, {"b": null}]}"#, size), 8);
            assert_eq!(count(br#""[,\"[,{""#, size), 0);
        }
    }
}
