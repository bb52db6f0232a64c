//! The words of an entry's neighbours: what the column `context` holds.
//!
//! Only entries before an entry count, so storing one changes no other. When a text changes or goes, the context of those
//! after it is made anew. The words are those of the weight C in `words` ([`crate::fts::Document`]), so the server puts
//! contexts together without anybody reading texts. A language that only the server knows has none.

use context_store::{Neighbourhood, OwnerId};

use crate::pg::connection::AsyncPgConnection;
use crate::pg::sql::{self, Bind, Fragment};

/// An array of the lexemes of the neighbours of the place that follows this text, its limits after it.
const LEXEMES_BEFORE: &str = "array_to_tsvector(ARRAY(SELECT unnest(tsvector_to_array(ts_filter(n.words, '{c}'))) \
                              FROM (SELECT words FROM context.entries AS b WHERE ";

/// Where an entry stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'e> {
    pub owner: &'e OwnerId,
    pub thread_id: &'e str,
    pub created_at: i64,
    pub id: i64,
}

/// The context of an entry at this place, in SQL.
pub(crate) fn context_of<'v>(place: Place<'v>, neighbourhood: Neighbourhood) -> Fragment<'v> {
    let mut context = Fragment::new("");
    if neighbourhood.entries == 0 {
        context.push("''::tsvector");
        return context;
    }
    context
        .push(LEXEMES_BEFORE)
        .push("b.owner_id = ")
        .bind(Bind::text(place.owner.as_str()));
    context
        .push(" AND b.thread_id = ")
        .bind(Bind::text(place.thread_id));
    context
        .push(" AND (b.created_at, b.id) < (")
        .bind(Bind::Int(place.created_at))
        .push(", ")
        .bind(Bind::Int(place.id));
    let oldest = place.created_at.saturating_sub(neighbourhood.gap_micros());
    context
        .push(") AND b.created_at >= ")
        .bind(Bind::Int(oldest));
    context
        .push(" ORDER BY b.created_at DESC, b.id DESC LIMIT ")
        .bind(Bind::Int(i64::from(neighbourhood.entries)));
    context.push(") AS n))");
    context
}

/// The context of the row `e` of this owner, in SQL. The owner is a value, not `e.owner_id`: only so does Citus see that
/// all of it lies on one server.
fn context_of_row(owner_id: &str, neighbourhood: Neighbourhood) -> Fragment<'_> {
    let mut context = Fragment::new("");
    context
        .push(LEXEMES_BEFORE)
        .push("b.owner_id = ")
        .bind(Bind::text(owner_id))
        .push(" AND b.thread_id = e.thread_id");
    context.push(
        " AND (b.created_at, b.id) < (e.created_at, e.id) AND b.created_at >= e.created_at - ",
    );
    context.bind(Bind::Int(neighbourhood.gap_micros()));
    context
        .push(" ORDER BY b.created_at DESC, b.id DESC LIMIT ")
        .bind(Bind::Int(i64::from(neighbourhood.entries)));
    context.push(") AS n))");
    context
}

/// Entries of one owner whose texts changed or went, column by column.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub threads: Vec<String>,
    pub created_at: Vec<i64>,
    pub ids: Vec<i64>,
}

/// Makes the contexts of the entries after these places anew, but not of those that `except` selects.
pub(crate) async fn renew_after(
    conn: &mut AsyncPgConnection,
    owner: &OwnerId,
    places: &Places,
    except: Option<Fragment<'_>>,
    neighbourhood: Neighbourhood,
) -> diesel::QueryResult<()> {
    if neighbourhood.entries == 0 || places.ids.is_empty() {
        return Ok(());
    }
    let mut renew = Fragment::new("UPDATE context.entries AS e SET context = ");
    renew
        .append(context_of_row(owner.as_str(), neighbourhood))
        .push(" WHERE e.owner_id = ")
        .bind(Bind::text(owner.as_str()));
    renew
        .push(" AND e.id IN (SELECT f.id FROM unnest(")
        .bind(Bind::texts(&places.threads))
        .push("::text[], ");
    renew
        .bind(Bind::ints(places.created_at.iter().copied()))
        .push("::bigint[], ")
        .bind(Bind::ints(places.ids.iter().copied()));
    renew.push("::bigint[]) AS d(thread_id, created_at, id), LATERAL (SELECT a.id FROM context.entries AS a WHERE a.owner_id = ");
    renew
        .bind(Bind::text(owner.as_str()))
        .push(" AND a.thread_id = d.thread_id AND (a.created_at, a.id) > (d.created_at, d.id)");
    renew
        .push(" ORDER BY a.created_at, a.id LIMIT ")
        .bind(Bind::Int(i64::from(neighbourhood.entries)))
        .push(") AS f)");
    if let Some(except) = except {
        renew.push(" AND NOT (").append(except).push(")");
    }
    sql::execute(conn, renew).await.map(drop)
}

/// Makes the contexts of these entries anew.
pub(crate) async fn renew(
    conn: &mut AsyncPgConnection,
    owner_id: &str,
    ids: Vec<i64>,
    neighbourhood: Neighbourhood,
) -> diesel::QueryResult<()> {
    let mut renew = Fragment::new("UPDATE context.entries AS e SET context = ");
    if neighbourhood.entries == 0 {
        renew.push("''");
    } else {
        renew.append(context_of_row(owner_id, neighbourhood));
    }
    renew
        .push(" WHERE e.owner_id = ")
        .bind(Bind::text(owner_id))
        .push(" AND e.id = ANY(")
        .bind(Bind::ints(ids))
        .push(")");
    sql::execute(conn, renew).await.map(drop)
}
