//! The index from tags to entries.

use context_store::OwnerId;

use crate::connection::AsyncPgConnection;
use crate::failure::Failure;
use crate::sql::{self, Bind, Fragment};

/// Makes these an entry's only tags, which had those before.
pub(crate) async fn replace(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    id: i64,
    before: &[String],
    tags: &[String],
) -> Result<(), Failure> {
    let gone: Vec<(i64, String)> = before
        .iter()
        .filter(|tag| !tags.contains(tag))
        .map(|tag| (id, tag.clone()))
        .collect();
    remove(conn, owner, &gone).await?;
    let new: Vec<&String> = tags.iter().filter(|tag| !before.contains(tag)).collect();
    if new.is_empty() {
        return Ok(());
    }
    let insert = "INSERT INTO context.entry_tags (owner_id, tag, id) SELECT ?, t.tag, ? FROM unnest(?) AS t(tag)";
    let tags = Bind::Texts(new.into_iter().map(Into::into).collect());
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

/// Takes entries with their tags out of the index.
pub(crate) async fn remove(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    pairs: &[(i64, String)],
) -> Result<(), Failure> {
    if pairs.is_empty() {
        return Ok(());
    }
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
