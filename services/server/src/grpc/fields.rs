//! Counts the fields of a message from its bytes, before it is decoded: a list of small numbers
//! takes thirty times as much memory decoded as encoded.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::LazyLock;

use bytes::Bytes;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};

use crate::json_values::JsonValues;

/// The shapes of the API's messages. The shape of a message says which of its fields hold many values.
static SHAPES: LazyLock<Shapes> = LazyLock::new(|| {
    FileDescriptorSet::decode(context_proto::FILE_DESCRIPTOR_SET)
        .map(Shapes::new)
        .unwrap_or_default()
});

/// Nesting that is counted. Metadata has up to 64 levels of three messages each. The decoder's own limit does not apply
/// to it, because each object is decoded as a separate message. Whatever is nested deeper counts like a malformed field.
const MAX_DEPTH: u32 = 256;
/// Memory of a decoded field: a member of an object with its key and its value. Messages of the first two levels, such as
/// the items of a batch, count three times.
pub const BYTES_PER_FIELD: usize = 128;
/// How many numbers of a packed list count as a field. A number takes 8 bytes decoded, and a list that grows reserves
/// up to twice its length.
const NUMBERS_PER_FIELD: usize = BYTES_PER_FIELD / 16;

/// The number of fields in the request message of the method at this path, nested ones included; 0
/// for paths outside the API. After a malformed field or a group, each byte that is left counts as
/// a field, because a decoder may read further: it skips groups, and compares the end of a nested
/// message only after its last field. Eight bytes of packed numbers count as one field; each number
/// has at least one byte.
#[must_use]
pub fn count(path: &str, message: &[Bytes]) -> usize {
    let Some(&shape) = SHAPES.requests.get(path) else {
        return 0;
    };
    let mut fields = 0;
    let end = message.iter().map(Bytes::len).sum();
    let mut data = Pieces::new(message);
    if SHAPES.walk(shape, &mut data, end, 0, &mut fields).is_none() {
        fields += end - data.position;
    }
    fields
}

/// Reads bytes that are split into several pieces.
pub struct Pieces<'p> {
    left: &'p [Bytes],
    current: &'p [u8],
    position: usize,
}

impl<'p> Pieces<'p> {
    /// A reader at the start of these pieces.
    #[must_use]
    pub const fn new(pieces: &'p [Bytes]) -> Self {
        Self {
            left: pieces,
            current: &[],
            position: 0,
        }
    }

    /// The rest of the current piece; empty at the end.
    fn chunk(&mut self) -> &'p [u8] {
        while let (true, Some((first, rest))) = (self.current.is_empty(), self.left.split_first()) {
            (self.current, self.left) = (&first[..], rest);
        }
        self.current
    }

    fn advance(&mut self, bytes: usize) {
        self.current = &self.current[bytes..];
        self.position += bytes;
    }

    /// Advances to a position; `None` if it is beyond the end.
    fn skip_to(&mut self, position: usize) -> Option<()> {
        while self.position < position {
            let bytes = self.chunk().len().min(position - self.position);
            if bytes == 0 {
                return None;
            }
            self.advance(bytes);
        }
        Some(())
    }

    /// Advances to a position, and counts the values of the JSON text up to it; `None` if it is beyond the end.
    fn json_values(&mut self, position: usize) -> Option<usize> {
        let mut values = JsonValues::default();
        while self.position < position {
            let chunk = self.chunk();
            let bytes = chunk.len().min(position - self.position);
            if bytes == 0 {
                return None;
            }
            values.read(&chunk[..bytes]);
            self.advance(bytes);
        }
        Some(values.count())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.chunk().first()?;
            self.advance(1);
            value |= u64::from(byte & 0x7f)
                .checked_shl(shift)
                .unwrap_or_default();
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let chunk = self.chunk();
        let bytes = chunk.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&chunk[..bytes]);
        self.advance(bytes);
        Ok(bytes)
    }
}

/// A field whose bytes may hold many values.
enum Field {
    /// A message: its index in [`Shapes::messages`].
    Message(usize),
    /// A list of numbers, which may be packed.
    Numbers,
    /// JSON text, which is parsed after the message is decoded.
    Json,
}

#[derive(Default)]
struct Shapes {
    /// For each message of the API, the numbers of its fields that hold many values.
    messages: Vec<Vec<(u64, Field)>>,
    /// The index of each request message in `messages`, by method path.
    requests: HashMap<String, usize>,
}

impl Shapes {
    fn new(set: FileDescriptorSet) -> Self {
        let mut found = Vec::new();
        for file in &set.file {
            for message in &file.message_type {
                collect(&format!(".{}", file.package()), message, &mut found);
            }
        }
        let index: HashMap<String, usize> = found
            .iter()
            .enumerate()
            .map(|(index, (name, _))| (name.clone(), index))
            .collect();
        let fields = |message: &DescriptorProto| {
            let fields = message.field.iter().filter_map(|field| {
                let kind = match (field.r#type(), field.label()) {
                    (Type::String, _) if field.name() == "json_value" => Field::Json,
                    (Type::Message, _) => Field::Message(*index.get(field.type_name())?),
                    (Type::String | Type::Bytes, Label::Repeated)
                    | (_, Label::Optional | Label::Required) => return None,
                    (_, Label::Repeated) => Field::Numbers,
                };
                Some((u64::try_from(field.number()).ok()?, kind))
            });
            fields.collect()
        };
        let messages = found.iter().map(|(_, message)| fields(message)).collect();
        let mut requests = HashMap::new();
        for file in &set.file {
            for service in &file.service {
                for method in &service.method {
                    if let Some(shape) = index.get(method.input_type()) {
                        requests.insert(
                            format!("/{}.{}/{}", file.package(), service.name(), method.name()),
                            *shape,
                        );
                    }
                }
            }
        }
        Self { messages, requests }
    }

    /// Counts the fields of the message that ends at `end`; `None` if it is malformed. `shape` is its index in
    /// `messages`.
    fn walk(
        &self,
        shape: usize,
        data: &mut Pieces<'_>,
        end: usize,
        depth: u32,
        fields: &mut usize,
    ) -> Option<()> {
        while data.position < end {
            *fields += 1;
            let tag = data.varint()?;
            let skipped = match tag & 7 {
                0 => {
                    data.varint()?;
                    0
                }
                1 => 8,
                2 => {
                    let length = usize::try_from(data.varint()?).ok()?;
                    let nested_end = data
                        .position
                        .checked_add(length)
                        .filter(|nested_end| *nested_end <= end)?;
                    let field = self.messages[shape]
                        .iter()
                        .find(|(number, _)| *number == tag >> 3);
                    match field {
                        Some((_, Field::Message(_))) if depth == MAX_DEPTH => return None,
                        Some((_, Field::Message(nested))) => {
                            if depth < 2 {
                                *fields += 2;
                            }
                            self.walk(*nested, data, nested_end, depth + 1, fields)?;
                        }
                        Some((_, Field::Numbers)) => *fields += length / NUMBERS_PER_FIELD,
                        Some((_, Field::Json)) => *fields += data.json_values(nested_end)?,
                        None => {}
                    }
                    nested_end - data.position
                }
                5 => 4,
                _ => return None,
            };
            data.skip_to(data.position.checked_add(skipped)?)?;
        }
        // The last field of a malformed message can extend beyond the end.
        (data.position == end).then_some(())
    }
}

/// Collects a message and the messages declared inside it, by full name.
fn collect<'d>(
    scope: &str,
    message: &'d DescriptorProto,
    found: &mut Vec<(String, &'d DescriptorProto)>,
) {
    let name = format!("{scope}.{}", message.name());
    for nested in &message.nested_type {
        collect(&name, nested, found);
    }
    found.push((name, message));
}

#[cfg(test)]
mod tests {
    use context_model::{Operation, StoreContextRequest};
    use context_proto::v1 as pb;

    use prost::Message as _;

    use super::{Bytes, SHAPES};

    const STORE: &str = "/context.v1.ContextService/StoreContext";

    /// The count of a message in one piece; asserts that splitting does not change it.
    fn count(path: &str, message: &[u8]) -> usize {
        let whole = super::count(path, &[Bytes::copy_from_slice(message)]);
        let pieces: Vec<Bytes> = message.chunks(3).map(Bytes::copy_from_slice).collect();
        assert_eq!(super::count(path, &pieces), whole);
        whole
    }

    fn store(text: &str, metadata: serde_json::Value) -> Vec<u8> {
        let metadata = metadata.as_object().cloned();
        let request = StoreContextRequest {
            thread_id: "t".into(),
            source: "user".into(),
            text: text.into(),
            metadata,
            ..Default::default()
        };
        pb::StoreContextRequest::from(request).encode_to_vec()
    }

    #[test]
    fn nested_values_are_counted_and_texts_are_not_looked_into() {
        let numbers = count(
            STORE,
            &store("x", serde_json::json!({"numbers": vec![1; 1000]})),
        );
        assert!((1000..5000).contains(&numbers), "{numbers}");
        assert!(
            count(
                STORE,
                &store(
                    &"x".repeat(100_000),
                    serde_json::json!({"text": "x".repeat(100_000)})
                )
            ) < 20
        );
    }

    #[test]
    fn values_below_all_levels_of_metadata_are_counted() {
        let mut value = serde_json::json!(vec![1; 1000]);
        for _ in 0..50 {
            value = serde_json::json!({ "a": value });
        }
        assert!(count(STORE, &store("x", value)) >= 1000);
    }

    #[test]
    fn each_value_of_json_text_counts_and_the_text_of_strings_does_not() {
        let filtered = |json: String| {
            let value = pb::Value {
                kind: Some(pb::value::Kind::JsonValue(json)),
            };
            let filter = pb::Filter {
                metadata_filters: vec![pb::MetadataFilter {
                    value: Some(value),
                    ..Default::default()
                }],
                ..Default::default()
            };
            let request = pb::SearchContextRequest {
                filter: Some(filter),
                ..Default::default()
            };
            count(
                "/context.v1.ContextService/SearchContext",
                &request.encode_to_vec(),
            )
        };
        let without = filtered(String::new());
        assert_eq!(
            filtered(serde_json::json!(vec![1; 1000]).to_string()),
            without + 1001
        );
        assert_eq!(filtered("{\"a\":[],\"b\":{\"c\":0}}".into()), without + 7);
        assert_eq!(filtered(format!("\"{}\"", "[,".repeat(50_000))), without);
    }

    #[test]
    fn every_method_of_the_contract_has_a_shape() {
        for operation in Operation::ALL {
            let path = format!("/{}/{}", operation.service(), operation.method());
            assert!(SHAPES.requests.contains_key(&path), "{path}");
        }
    }

    #[test]
    fn each_byte_after_a_malformed_field_counts() {
        assert_eq!(count(STORE, &[0x0a, 5, b'a']), 2);
        assert_eq!(count(STORE, &[0xff; 20]), 11);
        assert_eq!(count("/grpc.health.v1.Health/Check", &[8, 1]), 0);
    }

    /// An entry with a thousand empty tags.
    fn tags() -> Vec<u8> {
        let list = pb::StringList {
            values: vec![String::new(); 1000],
        };
        pb::StoreContextRequest {
            tags: Some(list),
            ..Default::default()
        }
        .encode_to_vec()
    }

    #[test]
    fn fields_after_a_group_count_because_the_decoder_skips_it() {
        // Field 15 is unknown: the start and the end of a group.
        let message = [&[0x7b, 0x7c][..], &tags()].concat();
        let decoded = pb::StoreContextRequest::decode(&message[..]).unwrap();
        assert_eq!(decoded.tags.unwrap().values.len(), 1000);
        assert!(count(STORE, &message) >= 1000);
    }

    #[test]
    fn fields_beyond_the_end_of_their_message_count_because_the_decoder_reads_them_first() {
        // The entry ends within its first field, the tags.
        let message = [&[0x0a, 4][..], &tags()].concat();
        assert!(pb::StoreContextBatchRequest::decode(&message[..]).is_err());
        assert!(count("/context.v1.ContextService/StoreContextBatch", &message) >= 1000);
    }

    #[test]
    fn packed_numbers_count_by_their_memory() {
        let ids = vec![1; 8000];
        let message = pb::GetContextByIdsRequest {
            context_ids: ids.clone(),
            ..Default::default()
        };
        let path = "/context.v1.ContextService/GetContextByIds";
        assert_eq!(count(path, &message.encode_to_vec()), 1001);
        let message = pb::DeleteContextRequest {
            context_ids: Some(pb::IdList { values: ids }),
            ..Default::default()
        };
        let path = "/context.v1.ContextService/DeleteContext";
        assert_eq!(count(path, &message.encode_to_vec()), 1004);
    }

    #[test]
    fn changed_and_truncated_messages_never_panic() {
        let message = store(
            "text",
            serde_json::json!({"a": {"b": [1, "two", {"c": null}]}, "d": 2.5}),
        );
        for at in 0..message.len() {
            count(STORE, &message[..at]);
            let mut changed = message.clone();
            for byte in 0..=u8::MAX {
                changed[at] = byte;
                count(STORE, &changed);
            }
        }
    }
}
