//! Whether the other tests of this crate can run here.

/// Its output is always shown (`.config/nextest.toml`), so that skipped tests are not mistaken for passed ones.
#[test]
fn says_whether_there_is_a_server() {
    match context_test_postgres::server() {
        Some(_) => eprintln!(
            "PostgreSQL: the tests run on the server of CONTEXT_TEST_POSTGRES_URL or DATABASE_URL"
        ),
        None => eprintln!("PostgreSQL: ALL TESTS THAT NEED A SERVER ARE SKIPPED"),
    }
}
