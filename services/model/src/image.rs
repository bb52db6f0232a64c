use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{JsonObject, Limits, Metadata, Violations};

/// The bytes of an image: base64 in JSON, raw bytes in protobuf.
///
/// Accepts standard and URL-safe base64, with or without padding, and ignores one `data:…;base64,`
/// prefix. Malformed base64 is read as no bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ImageBytes(pub Vec<u8>);

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

impl ImageBytes {
    fn decode(text: &str) -> Result<Self, base64::DecodeError> {
        let payload = match text
            .strip_prefix("data:")
            .and_then(|rest| rest.split_once(','))
        {
            Some((media_type, payload)) if media_type.ends_with(";base64") => payload,
            _ => text,
        };
        let url_safe = payload.contains(['-', '_']);
        let engine = if url_safe { &URL_SAFE } else { &STANDARD };
        engine.decode(payload).map(Self)
    }
}

impl fmt::Debug for ImageBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageBytes({} bytes)", self.0.len())
    }
}

impl<'de> Deserialize<'de> for ImageBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Base64Text)
    }
}

/// Decodes base64 without a copy of the text.
struct Base64Text;

impl Visitor<'_> for Base64Text {
    type Value = ImageBytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ImageBytes, E> {
        // Malformed base64 has no bytes, and an image without bytes is refused. An error here would refuse the whole
        // request, also a batch whose items stand alone.
        Ok(ImageBytes::decode(text).unwrap_or_default())
    }
}

impl Serialize for ImageBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The base64 is written piece by piece, because it is even larger than the image.
        serializer.collect_str(&base64::display::Base64Display::new(
            &self.0,
            &base64::engine::general_purpose::STANDARD,
        ))
    }
}

impl utoipa::PartialSchema for ImageBytes {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .content_encoding("base64")
            .description(Some(
                "Base64. Requests may use the standard or URL-safe alphabet; replies use the standard one with padding",
            ))
            .examples([serde_json::json!("iVBORw0KGgo=")])
            .into()
    }
}

impl utoipa::ToSchema for ImageBytes {
    fn name() -> std::borrow::Cow<'static, str> {
        "ImageBytes".into()
    }
}

/// An image of an entry, in requests and replies.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageInput {
    /// The image itself.
    #[serde(default)]
    #[schema(required)]
    pub data: ImageBytes,
    /// Its media type; default `image/png`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "image/png")]
    pub mime_type: Option<String>,
    /// Free-form metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::BTreeMap<String, serde_json::Value>>)]
    pub metadata: Option<JsonObject>,
}

/// A validated image.
#[derive(Debug, Clone, PartialEq)]
pub struct NewImage {
    /// The decoded bytes; not empty.
    pub data: Vec<u8>,
    /// The media type, such as `image/png`.
    pub mime_type: String,
    /// Metadata, if any was given.
    pub metadata: Option<Metadata>,
}

impl NewImage {
    const MAX_MIME_CHARS: usize = 128;

    /// Validates the images of one entry. `total` sums the bytes of the whole request. If there are violations, the
    /// images must not be used.
    pub fn parse_all(
        given: Vec<ImageInput>,
        field: &str,
        limits: &Limits,
        total: &mut u64,
        violations: &mut Violations,
    ) -> Vec<Self> {
        if given.len() > Limits::MAX_IMAGES {
            violations.push(
                field,
                format!(
                    "`{field}` has {} images; the maximum is {}",
                    given.len(),
                    Limits::MAX_IMAGES
                ),
            );
            return Vec::new();
        }
        let some = !given.is_empty();
        let images = given
            .into_iter()
            .enumerate()
            .filter_map(|(i, image)| {
                Self::parse(image, &format!("{field}[{i}]"), limits, total, violations)
            })
            .collect();
        if some && *total > limits.max_total_image_bytes {
            violations.push(
                field,
                format!(
                    "`{field}` brings the images of this request to {total} bytes; the maximum is {} (MAX_TOTAL_SIZE_MB)",
                    limits.max_total_image_bytes
                ),
            );
        }
        images
    }

    fn parse(
        given: ImageInput,
        field: &str,
        limits: &Limits,
        total: &mut u64,
        violations: &mut Violations,
    ) -> Option<Self> {
        let ImageInput {
            data: ImageBytes(data),
            mime_type,
            metadata,
        } = given;
        let size = data.len() as u64;
        *total = total.saturating_add(size);
        let data_field = format!("{field}.data");
        if size == 0 {
            violations.push(
                &data_field,
                format!("`{data_field}` must be at least one byte, in JSON as base64"),
            );
        } else if size > limits.max_image_bytes {
            violations.push(
                &data_field,
                format!(
                    "`{data_field}` has {size} bytes; the maximum is {} (MAX_IMAGE_SIZE_MB)",
                    limits.max_image_bytes
                ),
            );
        }
        let mime_type =
            mime_type.map_or_else(|| "image/png".to_owned(), |m| m.trim().to_ascii_lowercase());
        if !is_media_type(&mime_type) {
            let field = format!("{field}.mime_type");
            violations.push(
                &field,
                format!(
                    "`{field}` must be a media type such as image/png, at most {} characters",
                    Self::MAX_MIME_CHARS
                ),
            );
        }
        let metadata =
            metadata.and_then(|m| Metadata::parse(m, &format!("{field}.metadata"), violations));
        Some(Self {
            data,
            mime_type,
            metadata,
        })
    }
}

fn is_media_type(text: &str) -> bool {
    let token = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    text.len() <= NewImage::MAX_MIME_CHARS
        && text
            .split_once('/')
            .is_some_and(|(kind, sub)| token(kind) && token(sub))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_in_every_usual_spelling() {
        let bytes = vec![0xfb, 0xef, 0xff, 0x00];
        for text in [
            "++//AA==",
            "++//AA",
            "--__AA==",
            "--__AA",
            "data:image/png;base64,++//AA==",
        ] {
            assert_eq!(ImageBytes::decode(text).unwrap().0, bytes, "{text}");
        }
        for text in [
            "++//A",
            "+-//AA==",
            "++ //AA==",
            "data:image/png,++//AA==",
            "not base64!",
        ] {
            assert!(ImageBytes::decode(text).is_err(), "{text}");
            let read: ImageBytes = serde_json::from_value(text.into()).unwrap();
            assert_eq!(read, ImageBytes::default(), "{text}");
        }
    }

    #[test]
    fn limits_are_named() {
        let limits = Limits {
            max_image_bytes: 4,
            max_total_image_bytes: 6,
            ..Limits::default()
        };
        let image = |n: usize| ImageInput {
            data: ImageBytes(vec![1; n]),
            mime_type: None,
            metadata: None,
        };
        let mut violations = Violations::default();
        let _ = NewImage::parse_all(
            vec![image(0), image(5), image(3)],
            "images",
            &limits,
            &mut 0,
            &mut violations,
        );
        let error = violations.finish(()).unwrap_err();
        let fields: Vec<_> = error.violations.iter().map(|v| v.field.as_str()).collect();
        assert_eq!(fields, ["images[0].data", "images[1].data", "images"]);
        assert!(
            error
                .message
                .contains("`images[1].data` has 5 bytes; the maximum is 4 (MAX_IMAGE_SIZE_MB)"),
            "{error}"
        );
    }
}
