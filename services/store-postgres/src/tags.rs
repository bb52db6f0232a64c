//! The index from tags to entries.

use context_store::OwnerId;

use crate::pg::connection::AsyncPgConnection;
use crate::pg::failure::Failure;
use crate::pg::sql::{self, Bind, Fragment};

/// Adds an entry's tags to the index.
pub(crate) async fn add(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    id: i64,
    tags: &[&String],
) -> Result<(), Failure> {
    if tags.is_empty() {
        return Ok(());
    }
    // Raw SQL for `unnest`: one text for any number of tags.
    let insert = "INSERT INTO context.entry_tags (owner_id, tag, id) SELECT ?, t.tag, ? FROM unnest(?) AS t(tag)";
    let tags = Bind::Texts(tags.iter().map(|tag| tag.as_str().into()).collect());
    sql::execute(
        conn,
        Fragment::prepared(
            insert,
            vec![Bind::text(owner.as_str()), Bind::Int(id), tags],
        ),
    )
    .await?;
    Ok(())
}

/// Removes these pairs of an entry's id and a tag from the index.
pub(crate) async fn remove(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    pairs: &[(i64, String)],
) -> Result<(), Failure> {
    if pairs.is_empty() {
        return Ok(());
    }
    // Raw SQL for `unnest`: one text for any number of pairs.
    let delete = "DELETE FROM context.entry_tags AS t USING unnest(?, ?) AS gone(id, tag) \
                  WHERE t.owner_id = ? AND t.tag = gone.tag AND t.id = gone.id";
    let ids = Bind::ints(pairs.iter().map(|(id, _)| *id));
    let tags = Bind::Texts(pairs.iter().map(|(_, tag)| tag.as_str().into()).collect());
    sql::execute(
        conn,
        Fragment::prepared(delete, vec![ids, tags, Bind::text(owner.as_str())]),
    )
    .await?;
    Ok(())
}
