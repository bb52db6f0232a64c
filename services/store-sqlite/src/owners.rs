//! The rows of owners: revision, next id and counts.

use std::collections::HashMap;

use context_store::OwnerId;
use context_store::rules::counts::EntryCounts;
use diesel::prelude::*;
use diesel::sql_types::{Binary, Integer, Text};
use diesel::sqlite::SqliteConnection;

use crate::schema::{erased_owners, owners};
use crate::statement::{self, Value};

/// Number of low bits of a row id that hold the entry's id. The high bits hold the owner's number.
pub(crate) const ID_BITS: u32 = 40;
/// The numbers of owners are less than this.
const OWNERS: i64 = 1 << (62 - ID_BITS);

define_sql_function! {
    /// Random bytes.
    fn randomblob(bytes: Integer) -> Binary;
}
define_sql_function! {
    /// Hexadecimal digits in upper case.
    fn hex(bytes: Binary) -> Text;
}
define_sql_function! {
    /// ASCII letters in lower case.
    fn lower(text: Text) -> Text;
}

/// The row of one owner.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = owners)]
pub(crate) struct Owner {
    pub owner: i64,
    pub owner_id: String,
    pub revision: i64,
    pub next_id: i64,
    pub entry_count: i64,
    pub user_count: i64,
    pub agent_count: i64,
    pub multimodal_count: i64,
    pub image_count: i64,
    pub thread_count: i64,
    pub tag_count: i64,
}

impl Owner {
    /// Applies a change to the counts of entries.
    pub fn count(&mut self, change: EntryCounts) {
        let EntryCounts {
            entries,
            user,
            agent,
            multimodal,
            images,
        } = change;
        self.entry_count += entries;
        self.user_count += user;
        self.agent_count += agent;
        self.multimodal_count += multimodal;
        self.image_count += images;
    }

    /// The row id of this owner's entry. `None` for an id that no entry can have. A negative id is that of an
    /// artifact's document, and equals its row id.
    pub fn row_id(&self, id: i64) -> Option<i64> {
        if id < 0 {
            return Some(id);
        }
        ((1..1 << ID_BITS).contains(&id) && self.owner < OWNERS)
            .then_some(self.owner << ID_BITS | id)
    }
}

/// The id in the row id of an entry or a document.
pub(crate) const fn id_of_row(row_id: i64) -> i64 {
    if row_id < 0 {
        row_id
    } else {
        row_id & ((1 << ID_BITS) - 1)
    }
}

/// The owner's row. `None` if the owner has never written.
pub(crate) fn find(conn: &mut SqliteConnection, id: &OwnerId) -> QueryResult<Option<Owner>> {
    owners::table
        .filter(owners::owner_id.eq(id.as_str()))
        .select(Owner::as_select())
        .get_result(conn)
        .optional()
}

/// A cache of owners' rows: those changed in the open transaction, and those read before. Each changed row is written
/// once, immediately before the commit, however many requests share the transaction.
#[derive(Debug, Default)]
pub(crate) struct Owners {
    rows: HashMap<String, (Owner, Written)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Yes,
    Not,
}

/// Maximum number of rows cached between transactions.
const CACHED_ROWS: usize = 10_000;

impl Owners {
    /// The row as seen by the open transaction.
    pub fn find(
        &mut self,
        conn: &mut SqliteConnection,
        id: &OwnerId,
    ) -> QueryResult<Option<Owner>> {
        if let Some((owner, _)) = self.rows.get(id.as_str()) {
            return Ok(Some(owner.clone()));
        }
        let found = find(conn, id)?;
        if let Some(owner) = &found {
            self.rows
                .insert(owner.owner_id.clone(), (owner.clone(), Written::Yes));
        }
        Ok(found)
    }

    /// Creates the row of an owner. If an owner with this name was erased, its ids are not used again.
    pub fn create(conn: &mut SqliteConnection, id: &OwnerId) -> QueryResult<Owner> {
        let last: Option<i64> = owners::table
            .select(owners::owner)
            .order(owners::owner.desc())
            .first(conn)
            .optional()?;
        let unused_id: Option<i64> = diesel::delete(erased_owners::table.find(id.as_str()))
            .returning(erased_owners::next_id)
            .get_result(conn)
            .optional()?;
        let owner = Owner {
            owner: last.unwrap_or(0) + 1,
            owner_id: id.as_str().to_owned(),
            revision: 0,
            next_id: unused_id.unwrap_or(1),
            entry_count: 0,
            user_count: 0,
            agent_count: 0,
            multimodal_count: 0,
            image_count: 0,
            thread_count: 0,
            tag_count: 0,
        };
        diesel::insert_into(owners::table)
            .values((&owner, owners::incarnation.eq(lower(hex(randomblob(16))))))
            .execute(conn)?;
        Ok(owner)
    }

    /// Stores the row as changed by a request.
    pub fn put(&mut self, owner: Owner) {
        let unchanged = self
            .rows
            .get(&owner.owner_id)
            .is_some_and(|(known, _)| *known == owner);
        if !unchanged {
            self.rows
                .insert(owner.owner_id.clone(), (owner, Written::Not));
        }
    }

    /// Removes the row of a deleted owner.
    pub fn forget(&mut self, id: &str) {
        self.rows.remove(id);
    }

    /// Writes the changed rows.
    pub fn flush(&mut self, conn: &mut SqliteConnection) -> QueryResult<()> {
        for (owner, written) in self
            .rows
            .values_mut()
            .filter(|(_, written)| *written == Written::Not)
        {
            let Owner {
                owner,
                owner_id: _,
                revision,
                next_id,
                entry_count,
                user_count,
                agent_count,
                multimodal_count,
                image_count,
                thread_count,
                tag_count,
            } = owner;
            let counts = [
                entry_count,
                user_count,
                agent_count,
                multimodal_count,
                image_count,
                thread_count,
                tag_count,
            ];
            let values: Vec<Value<'_>> = [revision, next_id]
                .into_iter()
                .chain(counts)
                .chain([owner])
                .map(|value| Value::Int(*value))
                .collect();
            statement::execute(
                conn,
                "UPDATE owners \
                 SET revision = ?, next_id = ?, entry_count = ?, user_count = ?, agent_count = ?, \
                 multimodal_count = ?, image_count = ?, thread_count = ?, tag_count = ? \
                 WHERE owner = ?",
                &values,
            )?;
            *written = Written::Yes;
        }
        Ok(())
    }

    /// Clears the cache, because the transaction was undone.
    pub fn clear(&mut self) {
        self.rows.clear();
    }

    /// Bounds the size of the cache. Called between transactions.
    pub fn trim(&mut self) {
        if self.rows.len() > CACHED_ROWS {
            self.rows.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_id_holds_owner_and_id_and_refuses_what_does_not_fit() {
        let mut conn = SqliteConnection::establish(":memory:").unwrap();
        diesel::sql_query("CREATE TABLE owners (owner INTEGER PRIMARY KEY, owner_id, revision, next_id, entry_count, user_count, agent_count, multimodal_count, image_count, thread_count, tag_count, incarnation)")
            .execute(&mut conn)
            .unwrap();
        diesel::sql_query("CREATE TABLE erased_owners (owner_id PRIMARY KEY, next_id)")
            .execute(&mut conn)
            .unwrap();
        let first = Owners::create(&mut conn, &OwnerId::new("a")).unwrap();
        let second = Owners::create(&mut conn, &OwnerId::new("b")).unwrap();
        assert_ne!(first.row_id(7), second.row_id(7));
        assert_eq!(second.row_id(7).map(id_of_row), Some(7));
        assert_eq!(
            [0, 1 << ID_BITS, i64::MAX].map(|id| first.row_id(id)),
            [None; 3]
        );
        assert_eq!((first.row_id(-7), id_of_row(-7)), (Some(-7), -7));
    }
}
