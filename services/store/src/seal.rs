//! Checksums of stored content: what they cover and how they are compared, for both databases.
//!
//! They detect corruption by the disk and manual edits of the database. They do not protect against an attacker who can
//! write to the database, who could write checksums too. XXH3 with 128 bits is therefore sufficient, and costs less
//! than copying the content.
//!
//! An entry's checksums are stored in its row together with the version that they cover. An old service that knows no
//! checksums updates only the content and the version. Checksums of an earlier version are therefore ignored and
//! renewed later. The content of images and of artifact versions never changes, so their checksums need no version.

use std::sync::atomic::{AtomicU64, Ordering};

use context_model::{ArtifactId, Error, Reason};
use twox_hash::XxHash3_128;

/// A checksum.
pub type Sum = [u8; 16];

/// Size of an entry's checksums in bytes: the version, the sums of text and metadata, and a sum of these and the id.
pub const ENTRY_BYTES: usize = 48;

/// Size of an artifact version's checksums in bytes: the sums of title, metadata and content, and a sum of these,
/// the id and the version number.
pub const ARTIFACT_BYTES: usize = 56;

/// The kind of content that a checksum covers. Equal bytes of different kinds have different checksums.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
enum Domain {
    Text = 1,
    Metadata,
    ImageData,
    Image,
    Title,
    Content,
    Artifact,
    Entry,
}

fn sum(domain: Domain, bytes: &[u8]) -> Sum {
    XxHash3_128::oneshot_with_seed(domain as u64, bytes).to_be_bytes()
}

/// The damaged part of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The text.
    Text,
    /// The metadata.
    Metadata,
    /// An image, or the number of images.
    Images,
    /// The tags. No checksum covers them, but their list cannot be parsed.
    Tags,
    /// The source. No checksum covers it, but it is neither `user` nor `agent`.
    Source,
    /// The checksums themselves.
    Checksum,
}

impl Part {
    /// The name in a [`Finding`](crate::transfer::Finding).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Metadata => "metadata",
            Self::Images => "images",
            Self::Tags => "tags",
            Self::Source => "source",
            Self::Checksum => "checksum",
        }
    }
}

/// The checksums of an entry's text and metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntrySeal {
    version: i64,
    text: Sum,
    metadata: Sum,
}

impl EntrySeal {
    /// The checksums of this content. `metadata` is the JSON, byte for byte as stored.
    #[must_use]
    pub fn of(version: i64, text: &str, metadata: &str) -> Self {
        Self {
            version,
            text: sum(Domain::Text, text.as_bytes()),
            metadata: sum(Domain::Metadata, metadata.as_bytes()),
        }
    }

    /// The checksums of an entry's next version. `text` and `metadata` are given if they change. The checksum of an
    /// unchanged part is copied, because computing it from what was read would seal damage. It is computed only if the
    /// entry has no checksums, or only those of an earlier version.
    #[must_use]
    pub fn next(stored: &StoredContent<'_>, text: Option<&str>, metadata: Option<&str>) -> Self {
        let StoredContent {
            id,
            version,
            seal,
            text: stored_text,
            metadata: stored_metadata,
        } = *stored;
        let fresh = Self::of(
            version,
            text.unwrap_or(stored_text),
            metadata.unwrap_or(stored_metadata),
        );
        let previous = match seal.map(|seal| Self::parse(id, seal)) {
            None => fresh,
            Some(Some(seal)) if seal.version == version => seal,
            Some(Some(seal)) if seal.version < version => fresh,
            // Damaged checksums, or those of a later version. No content has the checksums that replace them.
            Some(_) => Self {
                version,
                text: [0; 16],
                metadata: [0; 16],
            },
        };
        Self {
            version: version + 1,
            text: if text.is_some() {
                fresh.text
            } else {
                previous.text
            },
            metadata: if metadata.is_some() {
                fresh.metadata
            } else {
                previous.metadata
            },
        }
    }

    /// The form stored in the row of entry `id`. It is valid in no other row.
    #[must_use]
    pub fn to_bytes(&self, id: i64) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.version.to_be_bytes());
        bytes[8..24].copy_from_slice(&self.text);
        bytes[24..40].copy_from_slice(&self.metadata);
        let own = own_sum(Domain::Entry, &[&id.to_be_bytes()], &bytes[..40]);
        bytes[40..].copy_from_slice(&own);
        bytes
    }

    /// Parses stored checksums. `None` when they are damaged or belong to another entry.
    fn parse(id: i64, bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ENTRY_BYTES] = bytes.try_into().ok()?;
        let (head, own) = bytes.split_at(40);
        let version = i64::from_be_bytes(*head.first_chunk()?);
        let seal = Self {
            version,
            text: *head[8..].first_chunk()?,
            metadata: *head[24..].first_chunk()?,
        };
        (own == own_sum(Domain::Entry, &[&id.to_be_bytes()], head) && version > 0).then_some(seal)
    }
}

/// The checksum over the checksums. It proves that they are undamaged and belong to their row.
fn own_sum(domain: Domain, row: &[&[u8]], sums: &[u8]) -> [u8; 8] {
    let mut parts = Vec::with_capacity(128);
    row.iter().for_each(|part| parts.extend_from_slice(part));
    parts.extend_from_slice(sums);
    let [a, b, c, d, e, f, g, h, ..] = sum(domain, &parts);
    [a, b, c, d, e, f, g, h]
}

/// The content of an entry's row.
#[derive(Debug, Clone, Copy)]
pub struct StoredContent<'r> {
    /// The entry's id.
    pub id: i64,
    /// The version.
    pub version: i64,
    /// The checksums, if it has any.
    pub seal: Option<&'r [u8]>,
    /// The text.
    pub text: &'r str,
    /// The metadata, as JSON.
    pub metadata: &'r str,
}

/// The result of comparing content with its checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// The content matches.
    Sound,
    /// There are no checksums, or they cover an earlier version.
    Unsealed,
    /// The content does not match.
    Damaged(Part),
}

/// Compares an entry's content with its checksums. With `whole_text` false only part of the text was read, so the text
/// is not checked.
#[must_use]
pub fn check_entry(stored: &StoredContent<'_>, whole_text: bool) -> Checked {
    let StoredContent {
        id,
        version,
        seal,
        text,
        metadata,
    } = *stored;
    let Some(seal) = seal else {
        return Checked::Unsealed;
    };
    match EntrySeal::parse(id, seal) {
        None => Checked::Damaged(Part::Checksum),
        // A service never writes checksums for a future version.
        Some(seal) if seal.version > version => Checked::Damaged(Part::Checksum),
        Some(seal) if seal.version < version => Checked::Unsealed,
        Some(seal) if whole_text && sum(Domain::Text, text.as_bytes()) != seal.text => {
            Checked::Damaged(Part::Text)
        }
        Some(seal) if sum(Domain::Metadata, metadata.as_bytes()) != seal.metadata => {
            Checked::Damaged(Part::Metadata)
        }
        Some(_) => Checked::Sound,
    }
}

/// Whether `text`, read with a limit of `chars` characters, is certainly complete.
#[must_use]
pub fn is_whole(text: &str, chars: Option<u32>) -> bool {
    // A text has at most as many characters as bytes.
    chars.is_none_or(|chars| text.len() < chars as usize || text.chars().count() < chars as usize)
}

/// The checksum of an entry's image.
#[must_use]
pub fn image(id: i64, position: i64, mime_type: &str, metadata: Option<&str>, data: &[u8]) -> Sum {
    let mut parts = Vec::with_capacity(64 + mime_type.len());
    parts.extend_from_slice(&id.to_be_bytes());
    parts.extend_from_slice(&position.to_be_bytes());
    parts.extend_from_slice(&sum(Domain::ImageData, data));
    if let Some(metadata) = metadata {
        parts.extend_from_slice(&sum(Domain::Metadata, metadata.as_bytes()));
    }
    parts.extend_from_slice(mime_type.as_bytes());
    sum(Domain::Image, &parts)
}

/// The parts of an artifact version that were read. `None` for a part that was not read completely.
#[derive(Debug, Clone, Copy)]
pub struct StoredVersionContent<'r> {
    /// The artifact's id.
    pub id: &'r str,
    /// Version number.
    pub version: i64,
    /// The title.
    pub title: &'r str,
    /// The metadata, as JSON.
    pub metadata: Option<&'r str>,
    /// The content.
    pub content: Option<&'r str>,
}

/// The checksums of an artifact version in stored form. They are valid in no other row. `metadata` is the JSON, byte
/// for byte as stored.
#[must_use]
pub fn artifact_version(
    id: &str,
    version: i64,
    title: &str,
    metadata: &str,
    content: &str,
) -> [u8; ARTIFACT_BYTES] {
    let mut bytes = [0; ARTIFACT_BYTES];
    bytes[..16].copy_from_slice(&sum(Domain::Title, title.as_bytes()));
    bytes[16..32].copy_from_slice(&sum(Domain::Metadata, metadata.as_bytes()));
    bytes[32..48].copy_from_slice(&sum(Domain::Content, content.as_bytes()));
    let own = own_sum(
        Domain::Artifact,
        &[&version.to_be_bytes(), id.as_bytes()],
        &bytes[..48],
    );
    bytes[48..].copy_from_slice(&own);
    bytes
}

/// Whether the parts that were read match the checksums. Without checksums the version counts as sound.
#[must_use]
pub fn artifact_is_sound(read: &StoredVersionContent<'_>, seal: Option<&[u8]>) -> bool {
    let StoredVersionContent {
        id,
        version,
        title,
        metadata,
        content,
    } = *read;
    let Some(seal) = seal else { return true };
    let Ok(seal) = <&[u8; ARTIFACT_BYTES]>::try_from(seal) else {
        return false;
    };
    let agrees = |domain, text: Option<&str>, at: usize| {
        text.is_none_or(|text| sum(domain, text.as_bytes()) == seal[at..at + 16])
    };
    own_sum(
        Domain::Artifact,
        &[&version.to_be_bytes(), id.as_bytes()],
        &seal[..48],
    ) == seal[48..]
        && agrees(Domain::Title, Some(title), 0)
        && agrees(Domain::Metadata, metadata, 16)
        && agrees(Domain::Content, content, 32)
}

/// Whether a stored checksum equals this one. True when there is no stored checksum.
#[must_use]
pub fn agrees(stored: Option<&[u8]>, sum: impl FnOnce() -> Sum) -> bool {
    stored.is_none_or(|stored| stored == sum())
}

/// Number of damaged rows that this process rejected.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Number of damaged rows that this process has rejected since its start. A row counts each time.
#[must_use]
pub fn refused_rows() -> u64 {
    REFUSED.load(Ordering::Relaxed)
}

/// The error for a damaged row. It increments the counter.
fn refused(what: String) -> Error {
    REFUSED.fetch_add(1, Ordering::Relaxed);
    let sentence = "is not what was stored. Restore it from a backup, replace it or delete it; \
                    `context-service verify` names all that is damaged";
    Error::new(Reason::StorageCorrupt, format!("{what} {sentence}"))
}

/// The error for a damaged entry. It names the entry. Each call counts in [`refused_rows`].
#[must_use]
pub fn refuse_context(id: i64, part: Part) -> Error {
    refused(match part {
        Part::Text => format!("the text of context {id}"),
        Part::Metadata => format!("the metadata of context {id}"),
        Part::Images => format!("an image of context {id}"),
        Part::Tags => format!("the list of tags of context {id}"),
        Part::Source => format!("the source of context {id}"),
        Part::Checksum => format!("context {id}"),
    })
}

/// The error for a damaged artifact version. It names the version. Each call counts in [`refused_rows`].
#[must_use]
pub fn refuse_artifact(id: &ArtifactId, version: i64) -> Error {
    refused(format!("version {version} of artifact {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: i64 = 17;

    fn stored<'r>(
        version: i64,
        seal: Option<&'r [u8]>,
        text: &'r str,
        metadata: &'r str,
    ) -> StoredContent<'r> {
        StoredContent {
            id: ID,
            version,
            seal,
            text,
            metadata,
        }
    }

    #[test]
    fn content_is_sound_until_a_bit_of_it_changes() {
        let seal = EntrySeal::of(3, "text", "{\"a\":1}").to_bytes(ID);
        assert_eq!(
            check_entry(&stored(3, Some(&seal), "text", "{\"a\":1}"), true),
            Checked::Sound
        );
        assert_eq!(
            check_entry(&stored(3, Some(&seal), "tezt", "{\"a\":1}"), true),
            Checked::Damaged(Part::Text)
        );
        assert_eq!(
            check_entry(&stored(3, Some(&seal), "te", "{\"a\":1}"), false),
            Checked::Sound,
            "a part of a text says nothing"
        );
        assert_eq!(
            check_entry(&stored(3, Some(&seal), "text", "{\"a\":2}"), true),
            Checked::Damaged(Part::Metadata)
        );
        assert_eq!(
            check_entry(&stored(3, Some(&seal), "te", "{\"a\":2}"), false),
            Checked::Damaged(Part::Metadata)
        );
    }

    #[test]
    fn checksums_of_an_earlier_version_say_nothing_and_those_of_a_later_one_are_damage() {
        let seal = EntrySeal::of(3, "text", "{}").to_bytes(ID);
        assert_eq!(
            check_entry(&stored(4, Some(&seal), "another", "{}"), true),
            Checked::Unsealed
        );
        assert_eq!(
            check_entry(&stored(2, Some(&seal), "text", "{}"), true),
            Checked::Damaged(Part::Checksum)
        );
        assert_eq!(
            check_entry(&stored(3, None, "text", "{}"), true),
            Checked::Unsealed
        );
    }

    #[test]
    fn every_flipped_bit_of_a_seal_is_damage_and_so_is_the_seal_of_another_entry() {
        let seal = EntrySeal::of(3, "text", "{}").to_bytes(ID);
        for bit in 0..ENTRY_BYTES * 8 {
            let mut flipped = seal;
            flipped[bit / 8] ^= 1 << (bit % 8);
            // With any version: a corrupted version must not be mistaken for that of an older service.
            for version in [3, i64::MAX] {
                let found = check_entry(&stored(version, Some(&flipped), "text", "{}"), true);
                assert_eq!(found, Checked::Damaged(Part::Checksum), "bit {bit}");
            }
        }
        for spoilt in [
            &[][..],
            &[0; ENTRY_BYTES],
            &seal[..47],
            &EntrySeal::of(3, "text", "{}").to_bytes(ID + 1),
        ] {
            assert_eq!(
                check_entry(&stored(9, Some(spoilt), "text", "{}"), true),
                Checked::Damaged(Part::Checksum)
            );
        }
    }

    #[test]
    fn an_update_takes_over_the_checksum_of_what_stays() {
        let seal = EntrySeal::of(1, "text", "{}").to_bytes(ID);
        // The text was damaged before its metadata was replaced.
        let damaged = stored(1, Some(&seal), "tezt", "{}");
        let next = EntrySeal::next(&damaged, None, Some("{\"a\":1}")).to_bytes(ID);
        assert_eq!(
            check_entry(&stored(2, Some(&next), "tezt", "{\"a\":1}"), true),
            Checked::Damaged(Part::Text)
        );
        assert_eq!(
            check_entry(&stored(2, Some(&next), "text", "{\"a\":1}"), true),
            Checked::Sound
        );
        let replaced = EntrySeal::next(&damaged, Some("new"), None).to_bytes(ID);
        assert_eq!(
            check_entry(&stored(2, Some(&replaced), "new", "{}"), true),
            Checked::Sound
        );
    }

    #[test]
    fn an_update_seals_what_no_checksum_covers_and_not_what_a_damaged_one_did() {
        for seal in [None, Some(&EntrySeal::of(1, "old", "{}").to_bytes(ID)[..])] {
            let next = EntrySeal::next(&stored(2, seal, "text", "{}"), None, Some("{\"a\":1}"))
                .to_bytes(ID);
            assert_eq!(
                check_entry(&stored(3, Some(&next), "text", "{\"a\":1}"), true),
                Checked::Sound
            );
        }
        let later = EntrySeal::of(3, "text", "{}").to_bytes(ID);
        for damaged in [[0; ENTRY_BYTES], later] {
            let next = EntrySeal::next(&stored(2, Some(&damaged), "text", "{}"), None, Some("{}"))
                .to_bytes(ID);
            assert_eq!(
                check_entry(&stored(3, Some(&next), "text", "{}"), true),
                Checked::Damaged(Part::Text)
            );
        }
    }

    #[test]
    fn a_part_of_a_text_is_whole_when_more_was_asked_for() {
        assert!(is_whole("äöü", None) && is_whole("äöü", Some(4)) && is_whole("abc", Some(300)));
        assert!(!is_whole("äöü", Some(3)) && !is_whole("abc", Some(3)) && !is_whole("", Some(0)));
    }

    #[test]
    fn an_image_and_an_artifact_version_are_told_from_every_other_one() {
        let base = image(1, 0, "image/png", None, b"data");
        let others = [
            image(2, 0, "image/png", None, b"data"),
            image(1, 1, "image/png", None, b"data"),
            image(1, 0, "image/gif", None, b"data"),
            image(1, 0, "image/png", Some("{}"), b"data"),
            image(1, 0, "image/png", None, b"dbta"),
        ];
        assert!(others.iter().all(|other| *other != base));
        assert!(
            agrees(None, || base)
                && agrees(Some(&base), || base)
                && !agrees(Some(&base[..15]), || base)
        );
        let seal = artifact_version("a", 1, "t", "{}", "c");
        let base = StoredVersionContent {
            id: "a",
            version: 1,
            title: "t",
            metadata: Some("{}"),
            content: Some("c"),
        };
        assert!(artifact_is_sound(&base, Some(&seal)) && artifact_is_sound(&base, None));
        assert!(artifact_is_sound(
            &StoredVersionContent {
                metadata: None,
                content: None,
                ..base
            },
            Some(&seal)
        ));
        let others = [
            StoredVersionContent { id: "b", ..base },
            StoredVersionContent { version: 2, ..base },
            StoredVersionContent {
                title: "u",
                content: None,
                ..base
            },
            StoredVersionContent {
                metadata: Some("{ }"),
                ..base
            },
            StoredVersionContent {
                content: Some("t"),
                ..base
            },
        ];
        assert!(
            others
                .iter()
                .all(|other| !artifact_is_sound(other, Some(&seal)))
        );
        assert!(
            !artifact_is_sound(&base, Some(&[0; ARTIFACT_BYTES]))
                && !artifact_is_sound(&base, Some(&[]))
        );
    }
}
