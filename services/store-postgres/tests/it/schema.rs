//! Compares the tables in the source with those that the migrations create.

use std::collections::BTreeMap;

use super::arrange::{database, store};

/// Tables by name: each column in order, with its type as diesel calls it.
type Tables = BTreeMap<String, Vec<(String, String)>>;

/// The tables of `src/schema.rs`.
fn written() -> Tables {
    let source = include_str!("../../src/schema.rs");
    let mut tables = Tables::new();
    let mut table: Option<(String, Vec<(String, String)>)> = None;
    for line in source.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("context.") {
            let name = rest.split(' ').next().expect("a name");
            table = Some((name.to_owned(), Vec::new()));
        } else if let Some((column, kind)) = line.split_once(" -> ") {
            let (_, columns) = table.as_mut().expect("a column stands in a table");
            columns.push((column.to_owned(), kind.trim_end_matches(',').to_owned()));
        } else if line == "}" {
            tables.extend(table.take());
        }
    }
    tables
}

fn diesel_type(sql: &str, nullable: bool) -> String {
    let kind = match sql {
        "text" => "Text",
        "text[]" => "Array<Text>",
        "bigint" => "BigInt",
        "boolean" => "Bool",
        "bytea" => "Binary",
        "json" => "Json",
        "jsonb" => "Jsonb",
        other => panic!("no type of schema.rs is known for {other}"),
    };
    if nullable {
        format!("Nullable<{kind}>")
    } else {
        kind.to_owned()
    }
}

#[tokio::test]
async fn the_tables_in_the_source_are_those_of_the_migrated_database() {
    let Some(database) = database().await else {
        return;
    };
    let _migrated = store(&database).await;
    // What only raw SQL uses is left out: the tables of vectors (they exist only with pgvector), the schema's version
    // (it is read before any table exists), and the columns of full-text search.
    let columns = "SELECT c.relname::text, a.attname::text, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull \
                   FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid \
                   WHERE c.relnamespace = 'context'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 \
                   AND NOT a.attisdropped AND c.relname NOT IN ('chunks', 'chunk_tokens', 'schema_version') \
                   AND a.attname NOT IN ('words', 'words_cut', 'context') ORDER BY c.relname, a.attnum";
    let mut migrated = Tables::new();
    for row in database
        .connect()
        .await
        .query(columns, &[])
        .await
        .expect("the columns")
    {
        let (table, column): (String, String) = (row.get(0), row.get(1));
        let kind: String = row.get(2);
        let column = (column, diesel_type(&kind, row.get(3)));
        migrated.entry(table).or_default().push(column);
    }
    assert_eq!(written(), migrated);
}
