use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::format_description::well_known::Rfc3339;
use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, Time};

/// A point in time in UTC: microseconds since 1970-01-01T00:00:00Z.
///
/// Displayed as RFC 3339 with `Z` and six fractional digits: `2025-11-29T10:00:00.000000Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

/// 0001-01-01T00:00:00Z to 9999-12-31T23:59:59.999999Z, the range of `google.protobuf.Timestamp`.
const RANGE: std::ops::RangeInclusive<i64> = -62_135_596_800_000_000..=253_402_300_799_999_999;

impl Timestamp {
    /// Microseconds since the epoch.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Parses the four documented forms: date, date-time without offset (taken as UTC), date-time with `Z`, date-time
    /// with an offset. It also accepts a space instead of the `T`, and the other date-times of ISO 8601. A date alone
    /// means its first moment, or with `is_end` its last. Digits beyond microseconds are rounded up, or with `is_end`
    /// down, so that nothing outside of the bounds lies between them.
    ///
    /// # Errors
    /// A sentence without the field's name, if the text is no such date.
    pub fn parse(text: &str, is_end: bool) -> Result<Self, &'static str> {
        const FORMS: &str = "must be an ISO 8601 date or date-time: 2025-11-29, 2025-11-29T10:00:00, 2025-11-29T10:00:00Z or 2025-11-29T10:00:00+02:00";
        let text = text.trim();
        if !text.is_ascii() || text.len() > 40 {
            return Err(FORMS);
        }
        if text.len() == 10 {
            let date = parse_date(text).ok_or(FORMS)?;
            let time = if is_end {
                Time::from_hms_micro(23, 59, 59, 999_999).map_err(|_| FORMS)?
            } else {
                Time::MIDNIGHT
            };
            let moment = PrimitiveDateTime::new(date, time).assume_utc();
            return Self::from_moment(moment, is_end).ok_or(FORMS);
        }
        // RFC 3339 requires an offset; a space instead of `T` is common in scripts.
        let mut owned = text.replacen(' ', "T", 1);
        let has_offset = owned.ends_with(['Z', 'z'])
            || owned
                .get(10..)
                .is_some_and(|rest| rest.contains(['+', '-']));
        if !has_offset {
            owned.push('Z');
        }
        // ISO 8601 also allows times without seconds and offsets without a colon.
        let moment = OffsetDateTime::parse(&owned, &Rfc3339)
            .or_else(|_| {
                OffsetDateTime::parse(
                    &owned,
                    &time::format_description::well_known::Iso8601::PARSING,
                )
            })
            .map_err(|_| FORMS)?;
        // The parser accepts 24 and 25 hours, because its type holds them.
        if moment.offset().whole_hours().unsigned_abs() > 23 {
            return Err(FORMS);
        }
        Self::from_moment(moment, is_end).ok_or(FORMS)
    }

    /// `None` outside [`RANGE`]. An offset can move a moment beyond the year 9999, where `to_offset` would panic.
    fn from_moment(moment: OffsetDateTime, is_end: bool) -> Option<Self> {
        let nanos = moment.unix_timestamp_nanos() + if is_end { 0 } else { 999 };
        let micros = i64::try_from(nanos.div_euclid(1000)).ok()?;
        RANGE.contains(&micros).then_some(Self(micros))
    }
}

fn parse_date(text: &str) -> Option<Date> {
    let bytes = text.as_bytes();
    if bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        let digits = &text[range];
        digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse::<u16>().ok())
            .flatten()
    };
    let month = Month::try_from(u8::try_from(number(5..7)?).ok()?).ok()?;
    Date::from_calendar_date(
        i32::from(number(0..4)?),
        month,
        u8::try_from(number(8..10)?).ok()?,
    )
    .ok()
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.clamp(*RANGE.start(), *RANGE.end());
        let moment = OffsetDateTime::from_unix_timestamp(micros.div_euclid(1_000_000))
            .map_err(|_| fmt::Error)?;
        let (year, month, day) = moment.to_calendar_date();
        let (hour, minute, second) = moment.to_hms();
        // Written digit by digit: each entry of a reply has two timestamps, and `write!` with
        // widths takes ten times as long.
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        digits(&mut text[0..4], i64::from(year));
        digits(&mut text[5..7], i64::from(u8::from(month)));
        digits(&mut text[8..10], i64::from(day));
        digits(&mut text[11..13], i64::from(hour));
        digits(&mut text[14..16], i64::from(minute));
        digits(&mut text[17..19], i64::from(second));
        digits(&mut text[20..26], micros.rem_euclid(1_000_000));
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Fills `text` with the decimal digits of a non-negative number, with leading zeros.
fn digits(text: &mut [u8], mut number: i64) {
    for digit in text.iter_mut().rev() {
        // The remainder is a single digit, so the cast cannot truncate.
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text, false).map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for Timestamp {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .format(Some(utoipa::openapi::SchemaFormat::KnownFormat(
                utoipa::openapi::KnownFormat::DateTime,
            )))
            .description(Some("RFC 3339, UTC, microseconds"))
            .examples([serde_json::json!("2025-11-29T10:00:00.000000Z")])
            .into()
    }
}

impl utoipa::ToSchema for Timestamp {
    fn name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, end: bool) -> String {
        Timestamp::parse(text, end).map_or_else(|e| e[..8].to_owned(), |t| t.to_string())
    }

    #[test]
    fn the_four_forms_and_their_neighbours() {
        for (text, end, expected) in [
            ("2025-11-29", false, "2025-11-29T00:00:00.000000Z"),
            ("2025-11-29", true, "2025-11-29T23:59:59.999999Z"),
            ("2025-11-29T10:00:00", true, "2025-11-29T10:00:00.000000Z"),
            ("2025-11-29T10:00:00Z", false, "2025-11-29T10:00:00.000000Z"),
            (
                "2025-11-29T10:00:00+02:00",
                false,
                "2025-11-29T08:00:00.000000Z",
            ),
            (
                "2025-11-29T10:00:00.1234567Z",
                true,
                "2025-11-29T10:00:00.123456Z",
            ),
            (
                "2025-11-29T10:00:00.1234567Z",
                false,
                "2025-11-29T10:00:00.123457Z",
            ),
            (
                "1969-12-31T23:59:59.9999991Z",
                true,
                "1969-12-31T23:59:59.999999Z",
            ),
            (
                "1969-12-31T23:59:59.9999991Z",
                false,
                "1970-01-01T00:00:00.000000Z",
            ),
            (
                "2025-11-29T10:00:00-23:59",
                false,
                "2025-11-30T09:59:00.000000Z",
            ),
            ("2025-11-29T10:00:00+25:59", false, "must be "),
            ("2025-11-29T10:00:00-25:00", false, "must be "),
            ("2025-11-29T10:00:00+24:00", false, "must be "),
            ("2025-11-29T10:00+2400", false, "must be "),
            ("2025-11-29 10:00:00", false, "2025-11-29T10:00:00.000000Z"),
            ("2025-02-30", false, "must be "),
            ("2025-1-1", false, "must be "),
            ("yesterday", false, "must be "),
            ("", false, "must be "),
            ("2025-11-29T25:00:00", false, "must be "),
            ("0000-11-29", false, "must be "),
            ("２０２５-11", false, "must be "),
            ("9999-12-31T23:59:59-01:00", false, "must be "),
            ("0001-01-01T00:00:00+01:00", false, "must be "),
        ] {
            assert_eq!(shown(text, end), expected, "{text}");
        }
    }

    #[test]
    fn a_moment_reads_back_as_it_was_shown() {
        for micros in [0, -1, 1_700_000_000_123_456, *RANGE.start(), *RANGE.end()] {
            let shown = Timestamp(micros).to_string();
            assert_eq!(
                Timestamp::parse(&shown, false),
                Ok(Timestamp(micros)),
                "{shown}"
            );
        }
    }
}
