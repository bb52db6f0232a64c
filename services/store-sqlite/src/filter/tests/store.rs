//! An in-memory database with manually inserted entries, so that the filter is tested without the writer.

use context_model::{ContentType, JsonObject, Metadata, MetadataPath};
use context_store::StoredEntry;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;

use crate::filter::index_statement;
use crate::schema::{entries, entry_tags};

pub const OWNER: i64 = 3;

pub fn path(text: &str) -> MetadataPath {
    MetadataPath::parse(text).expect("a valid path")
}

pub fn open(indexed: &[MetadataPath]) -> SqliteConnection {
    let mut conn = SqliteConnection::establish(":memory:").expect("an in-memory database");
    for migration in [
        include_str!("../../../../../migrations/sqlite/2026-11-21-000001_contexts/up.sql"),
        include_str!("../../../../../migrations/sqlite/2026-11-21-000002_artifacts/up.sql"),
        include_str!(
            "../../../../../migrations/sqlite/2026-11-24-000011_artifact_documents/up.sql"
        ),
    ] {
        conn.batch_execute(migration).expect("the migration runs");
    }
    for field in indexed {
        conn.batch_execute(&index_statement(field).1)
            .expect("the index is created");
    }
    conn
}

pub fn row_id(owner: i64, id: i64) -> i64 {
    owner << 40 | id
}

pub fn insert(conn: &mut SqliteConnection, owner: i64, entry: &StoredEntry) {
    let metadata = Metadata::from_stored(entry.metadata.to_object().unwrap());
    diesel::insert_into(entries::table)
        .values((
            entries::row_id.eq(row_id(owner, entry.id)),
            entries::owner.eq(owner),
            entries::id.eq(entry.id),
            entries::thread_id.eq(&entry.thread_id),
            entries::source.eq(entry.source.as_str()),
            entries::image_count.eq(i64::from(entry.content_type == ContentType::Multimodal)),
            entries::version.eq(entry.version),
            entries::created_at.eq(entry.created_at.micros()),
            entries::updated_at.eq(entry.updated_at.micros()),
            entries::tags.eq(serde_json::to_string(&entry.tags).expect("strings are JSON")),
            entries::summary.eq(&entry.summary),
            entries::metadata.eq(metadata.to_json()),
            entries::metadata_folded.eq(metadata.to_folded_json()),
            entries::text.eq(&entry.text),
        ))
        .execute(conn)
        .expect("the entry is new");
    for tag in &entry.tags {
        diesel::insert_into(entry_tags::table)
            .values((
                entry_tags::owner.eq(owner),
                entry_tags::tag.eq(tag),
                entry_tags::row_id.eq(row_id(owner, entry.id)),
            ))
            .execute(conn)
            .expect("the tag is new");
    }
}

/// An entry with default values.
pub fn entry(id: i64, metadata: JsonObject) -> StoredEntry {
    StoredEntry {
        id,
        thread_id: "t1".into(),
        source: context_model::Source::User,
        content_type: ContentType::Text,
        text: "text".into(),
        summary: String::new(),
        metadata: context_model::ObjectText::from(&metadata),
        tags: Vec::new(),
        created_at: context_model::Timestamp(1_000 * id),
        updated_at: context_model::Timestamp(1_000 * id),
        version: 1,
        images: None,
        damage: None,
    }
}
