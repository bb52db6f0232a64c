//! Entries whose content is derived from a few numbers, so that a mixture of two entries is detected.

use context_model::{Entry, ImageBytes, ImageInput, JsonObject, Source, StoreContextRequest};
use context_test_support::Random;
use serde_json::json;

/// What an entry should hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// The thread.
    pub thread_id: String,
    /// Who wrote it.
    pub source: Source,
    /// The text. Its first word is unique.
    pub text: String,
    /// The tags, sorted.
    pub tags: Vec<String>,
    /// The metadata.
    pub metadata: JsonObject,
    /// The images, in order.
    pub images: Vec<ImageInput>,
}

impl Content {
    /// The content of entry number `serial` of writer `writer` after its `revision`-th change, in this thread.
    #[must_use]
    pub fn new(writer: usize, serial: u64, revision: u64, thread_id: &str) -> Self {
        let word = format!("w{writer}n{serial}r{revision}e");
        let mut random =
            Random::new(serial.wrapping_mul(1000).wrapping_add(revision)).part(writer as u64);
        // The model of the tests knows the first four words. For all others it has one token, so that texts of equal
        // length without these four have equal vectors.
        let filler = [
            "agents",
            "search",
            "context",
            "database",
            "amet",
            "запись",
            "記憶",
        ];
        // Most texts are short. Some need several pages of the database.
        let words = if random.chance(10) {
            random.below(3000)
        } else {
            random.below(40)
        };
        let mut text = word.clone();
        for _ in 0..words {
            text.push(' ');
            text.push_str(filler[random.below(filler.len())]);
        }
        let mut tags: Vec<String> = (0..random.below(4))
            .map(|_| format!("tag{}", random.below(12)))
            .collect();
        tags.push(word.clone());
        tags.sort();
        tags.dedup();
        let metadata = json!({ "word": word, "revision": revision, "ratio": 0.5, "deep": { "list": [1, null, "x"], "serial": serial } });
        let images = (0..random.below(4).saturating_sub(1))
            .map(|number| {
                let size = if random.chance(10) { 60_000 } else { 200 };
                let size = 1 + random.below(size);
                ImageInput {
                    data: ImageBytes(random.bytes(size)),
                    mime_type: Some("image/png".to_owned()),
                    metadata: (number == 1).then(|| object(json!({ "word": word }))),
                }
            })
            .collect();
        let source = if random.chance(50) {
            Source::User
        } else {
            Source::Agent
        };
        Self {
            thread_id: thread_id.to_owned(),
            source,
            text,
            tags,
            metadata: object(metadata),
            images,
        }
    }

    /// A request that stores the entry.
    #[must_use]
    pub fn request(&self) -> StoreContextRequest {
        let Self {
            thread_id,
            source,
            text,
            tags,
            metadata,
            images,
        } = self.clone();
        StoreContextRequest {
            thread_id,
            source: source.as_str().to_owned(),
            text,
            images: (!images.is_empty()).then_some(images),
            metadata: Some(metadata),
            tags: Some(tags),
        }
    }

    /// The unique first word of the text.
    #[must_use]
    pub fn word(&self) -> &str {
        self.text.split(' ').next().unwrap_or_default()
    }
}

impl From<Entry> for Content {
    fn from(entry: Entry) -> Self {
        let Entry {
            id: _,
            thread_id,
            source,
            content_type: _,
            text_content,
            summary: _,
            metadata,
            tags,
            ..
        } = entry;
        let metadata = metadata
            .to_object()
            .expect("a reply's metadata can be read");
        Self {
            thread_id,
            source,
            text: text_content,
            tags,
            metadata,
            images: entry.images.unwrap_or_default(),
        }
    }
}

fn object(value: serde_json::Value) -> JsonObject {
    match value {
        serde_json::Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}
