//! The deadline set by the caller.

use std::time::Duration;

use tonic::metadata::MetadataMap;

/// The time the caller allows, from `grpc-timeout`
/// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>). `None` if the header is
/// missing or malformed.
pub fn deadline(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let amount: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(amount * 3600)),
        "M" => Some(Duration::from_secs(amount * 60)),
        "S" => Some(Duration::from_secs(amount)),
        "m" => Some(Duration::from_millis(amount)),
        "u" => Some(Duration::from_micros(amount)),
        "n" => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataValue;

    use super::*;

    #[test]
    fn deadlines_have_six_units() {
        let read = |text: &str| {
            let mut metadata = MetadataMap::new();
            let value = MetadataValue::try_from(text.as_bytes()).unwrap();
            metadata.insert("grpc-timeout", value);
            deadline(&metadata)
        };
        assert_eq!(read("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(read("1M"), Some(Duration::from_secs(60)));
        assert_eq!(read("3S"), Some(Duration::from_secs(3)));
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("99999999u"), Some(Duration::from_micros(99_999_999)));
        assert_eq!(read("5n"), Some(Duration::from_nanos(5)));
        for malformed in ["5", "S", "-5S", "123456789S", "5X", "1.5S", "ä"] {
            assert_eq!(read(malformed), None, "{malformed}");
        }
    }
}
