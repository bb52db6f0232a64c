//! Databases and stores for the tests of this crate.

use context_store_postgres::{Config, PostgresStore, Target};
use context_test_postgres::TestDatabase;

/// All migrations. A hash of them names the template database, so that a changed schema gets a new template.
pub const MIGRATIONS: [&str; 16] = [
    include_str!("../../../../migrations/postgres/2026-11-21-000001_contexts/up.sql"),
    include_str!("../../../../migrations/postgres/2026-11-21-000002_artifacts/up.sql"),
    include_str!("../../../../migrations/postgres/2026-11-21-000003_keys/up.sql"),
    include_str!("../../../../migrations/postgres/2026-11-21-000004_vectors/up.sql"),
    include_str!("../../../../migrations/postgres/2026-11-21-000004_vectors/chunks.sql"),
    include_str!("../../../../migrations/postgres/2026-11-21-000005_neighbours/up.sql"),
    include_str!("../../../../migrations/postgres/2026-11-21-000006_summaries/up.sql"),
    include_str!("../../../../migrations/postgres/2026-11-21-000007_chunk_tokens/up.sql"),
    include_str!("../../../../migrations/postgres/2026-11-21-000007_chunk_tokens/chunk_tokens.sql"),
    include_str!("../../../../migrations/postgres/2026-11-22-000008_key_digests/up.sql"),
    include_str!("../../../../migrations/postgres/2026-11-22-000009_checksums/up.sql"),
    include_str!("../../../../migrations/postgres/2026-11-23-000010_feed/up.sql"),
    include_str!("../../../../migrations/postgres/2026-11-23-000011_audited_changes/up.sql"),
    include_str!("../../../../migrations/postgres/2026-11-24-000012_artifact_documents/up.sql"),
    include_str!("../../../../migrations/postgres/2026-11-24-000013_artifact_paths/up.sql"),
    include_str!("../../../../migrations/postgres/2026-11-27-000014_sharding/up.sql"),
];

/// The configuration of a test's store.
pub fn config(url: &str) -> Config {
    let mut config = Config::new(Target::parse(url).expect("the tests' server has a proper URL"));
    config.pool_size = 8;
    config
}

/// A database with the schema in it. `None` if the tests have no PostgreSQL server.
pub async fn database() -> Option<TestDatabase> {
    let version = MIGRATIONS
        .concat()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    TestDatabase::create(&format!("{version:x}"), async |url| {
        let store = PostgresStore::open(config(url))
            .await
            .expect("the template opens");
        context_store::Store::close(&store).await;
    })
    .await
}

/// A store on this database.
pub async fn store(database: &TestDatabase) -> PostgresStore {
    PostgresStore::open(config(database.url()))
        .await
        .expect("the database opens")
}
