//! Cursors: positions in an owner's feed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use context_model::{Error, Reason, Result};
use context_store::{Change, Changed, Feed, OwnerId};
use sha2::{Digest as _, Sha256};

/// The format of a position: version, owner, incarnation, revision, fingerprint, check.
const POSITION: u8 = 1;
/// The same, and before the check the revision and the fingerprint of the newest state that was shown.
const POSITION_AND_SHOWN: u8 = 2;
/// Maximum number of bytes of a cursor.
const MAX_BYTES: usize = 1 + 4 + 8 + 8 + 8 + 8 + 8 + 4;
/// Bytes of the check at the end.
const CHECK: usize = 4;
/// The fingerprint of a position whose row is not known.
const NO_ROW: [u8; 8] = [0; 8];

/// A position: after a revision of one incarnation of an owner's feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cursor {
    owner: [u8; 4],
    incarnation: [u8; 8],
    pub revision: i64,
    /// The fingerprint of the row with this revision. After a failover, the same revision can belong to another change.
    fingerprint: [u8; 8],
    /// The newest state that was shown to the reader, if it is newer than the position. Bodies and filters show the
    /// current entries, so a reader that is behind has seen states of later changes. If these changes are lost, it must
    /// read everything again, although its own position still exists.
    shown: Option<Shown>,
}

/// The state after a change, which was shown to a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown {
    pub revision: i64,
    fingerprint: [u8; 8],
}

impl Shown {
    /// The state after this change.
    pub fn after(change: &Change) -> Self {
        Self {
            revision: change.revision,
            fingerprint: fingerprint(change),
        }
    }
}

impl Cursor {
    /// The position after this change.
    pub fn after(owner: &OwnerId, feed: &Feed, change: &Change) -> Self {
        Self {
            fingerprint: fingerprint(change),
            ..Self::before_row(owner, feed, change.revision + 1)
        }
    }

    /// The position before this revision, when the row before it is not known.
    pub fn before_row(owner: &OwnerId, feed: &Feed, revision: i64) -> Self {
        Self {
            owner: hash(owner.as_str().as_bytes()),
            incarnation: hash(feed.incarnation.as_bytes()),
            revision: revision - 1,
            fingerprint: NO_ROW,
            shown: None,
        }
    }

    /// The same position, for a reader to whom this state was shown.
    pub fn with_shown(self, shown: Option<Shown>) -> Self {
        Self {
            // The position itself covers every state before it.
            shown: shown.filter(|shown| shown.revision > self.revision),
            ..self
        }
    }

    /// The newest state that was shown, if it is newer than the position.
    pub const fn shown(&self) -> Option<Shown> {
        self.shown
    }

    /// Reads a cursor of this owner.
    ///
    /// # Errors
    /// `CURSOR_INVALID`.
    pub fn read(text: &str, owner: &OwnerId) -> Result<Self> {
        let invalid = || {
            Error::new(
                Reason::CursorInvalid,
                "`cursor` is not a cursor of this owner; it must be `next_cursor` of an earlier reply, unchanged",
            )
        };
        let bytes = Some(text)
            .filter(|text| text.len() <= 2 * MAX_BYTES)
            .and_then(|text| URL_SAFE_NO_PAD.decode(text).ok())
            .ok_or_else(invalid)?;
        let (content, check) = bytes.split_last_chunk::<CHECK>().ok_or_else(invalid)?;
        let mut rest = content;
        let cursor = (|| {
            let [format] = take(&mut rest)?;
            let position = Self {
                owner: take(&mut rest)?,
                incarnation: take(&mut rest)?,
                revision: i64::from_be_bytes(take(&mut rest)?),
                fingerprint: take(&mut rest)?,
                shown: None,
            };
            match format {
                POSITION => Some(position),
                POSITION_AND_SHOWN => Some(Self {
                    shown: Some(Shown {
                        revision: i64::from_be_bytes(take(&mut rest)?),
                        fingerprint: take(&mut rest)?,
                    }),
                    ..position
                }),
                _ => None,
            }
        })();
        cursor
            .filter(|cursor| {
                rest.is_empty()
                    && *check == hash::<CHECK>(content)
                    && cursor.owner == hash(owner.as_str().as_bytes())
                    && (0..i64::MAX).contains(&cursor.revision)
            })
            .ok_or_else(invalid)
    }

    /// The text for callers.
    pub fn text(&self) -> String {
        let Self {
            owner,
            incarnation,
            revision,
            fingerprint,
            shown,
        } = self;
        let mut bytes = Vec::with_capacity(MAX_BYTES);
        bytes.push(if shown.is_some() {
            POSITION_AND_SHOWN
        } else {
            POSITION
        });
        bytes.extend(owner);
        bytes.extend(incarnation);
        bytes.extend(revision.to_be_bytes());
        bytes.extend(fingerprint);
        if let Some(Shown {
            revision,
            fingerprint,
        }) = shown
        {
            bytes.extend(revision.to_be_bytes());
            bytes.extend(fingerprint);
        }
        bytes.extend(hash::<CHECK>(&bytes));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Checks that the feed has everything after this position. It must have been read from the position's own row on.
    ///
    /// # Errors
    /// `RESYNC_REQUIRED`; `CURSOR_COMPACTED`.
    pub fn check(&self, owner: &OwnerId, feed: &Feed) -> Result<()> {
        // A cursor from before the owner's first write has no incarnation. It is valid in every one, because its reader
        // has seen nothing.
        let is_before_all = self.revision == 0
            && self.incarnation == hash(Feed::of_no_owner().incarnation.as_bytes());
        if !is_before_all && self.incarnation != hash(feed.incarnation.as_bytes()) {
            return Err(resync("the owner was created again or restored"));
        }
        if self.revision > feed.revision {
            return Err(resync("the database is at an earlier revision"));
        }
        if self.revision + 1 < feed.oldest {
            let mut error = Error::new(
                Reason::CursorCompacted,
                format!(
                    "`cursor` is at revision {}, and the oldest change that is kept has revision {}; read all entries \
                     again, or continue with `oldest_cursor`",
                    self.revision, feed.oldest
                ),
            );
            let oldest = Self::before_row(owner, feed, feed.oldest);
            error.oldest_cursor = Some(oldest.text().into());
            return Err(error);
        }
        let row = feed
            .changes
            .first()
            .filter(|change| change.revision == self.revision);
        match row {
            Some(row) if fingerprint(row) != self.fingerprint => {
                Err(resync("the revision belongs to another change"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the newest state that was shown is still part of the history: its row is among `changes`.
    ///
    /// # Errors
    /// `RESYNC_REQUIRED`.
    pub fn check_shown(&self, changes: &[Change]) -> Result<()> {
        let exists = |shown| changes.iter().any(|change| Shown::after(change) == shown);
        if self.shown.is_none_or(exists) {
            return Ok(());
        }
        Err(resync("it was given with a later state, which is lost"))
    }
}

/// The error for a reader whose history is not that of the database.
pub(super) fn resync(why: &str) -> Error {
    Error::new(
        Reason::ResyncRequired,
        format!("`cursor` does not belong to this history: {why}; read all entries again"),
    )
}

/// The next bytes of a slice.
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*first)
}

fn hash<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let digest = Sha256::digest(bytes);
    std::array::from_fn(|i| digest[i])
}

/// Identifies a row of the feed. Rows never change.
fn fingerprint(change: &Change) -> [u8; 8] {
    let Change {
        revision,
        at,
        kind,
        changed,
        version,
        key_id,
        commit_end,
    } = change;
    let (id, thread_id) = match changed {
        // The source is left out: services from before the feed did not record it.
        Changed::Context {
            id,
            thread_id,
            source: _,
        } => (id.to_string(), thread_id.as_str()),
        Changed::Artifact { id } => (id.clone(), ""),
    };
    let mut digest = Sha256::new();
    digest.update(revision.to_be_bytes());
    digest.update(at.micros().to_be_bytes());
    digest.update(version.unwrap_or_default().to_be_bytes());
    digest.update([u8::from(*commit_end)]);
    for text in [
        kind.as_str(),
        changed.entity(),
        &id,
        thread_id,
        key_id.as_deref().unwrap_or_default(),
    ] {
        digest.update(text.as_bytes());
        digest.update([0]);
    }
    let digest = digest.finalize();
    std::array::from_fn(|i| digest[i])
}

#[cfg(test)]
mod tests {
    use context_model::Timestamp;
    use context_store::ChangeKind;

    use super::*;

    fn change(revision: i64) -> Change {
        Change {
            revision,
            at: Timestamp(revision * 1000),
            kind: ChangeKind::Create,
            changed: Changed::Context {
                id: revision,
                thread_id: "t".to_owned(),
                source: None,
            },
            version: Some(1),
            key_id: None,
            commit_end: true,
        }
    }

    /// A feed with the revisions from `oldest` to `revision`, as read from `from` on.
    fn feed(incarnation: &str, oldest: i64, revision: i64, from: i64) -> Feed {
        Feed {
            incarnation: incarnation.to_owned(),
            revision,
            oldest,
            is_behind: false,
            changes: (from.max(oldest)..=revision).map(change).collect(),
        }
    }

    fn reason(cursor: &Cursor, feed: &Feed) -> Option<Reason> {
        cursor
            .check(&OwnerId::default(), feed)
            .err()
            .map(|error| error.reason)
    }

    /// A cursor after revision 5, whose reader was shown the state of revision 8.
    fn shown_8() -> Cursor {
        Cursor::after(&OwnerId::default(), &feed("a", 1, 8, 1), &change(5))
            .with_shown(Some(Shown::after(&change(8))))
    }

    #[test]
    fn a_cursor_reads_back_for_its_owner_alone_and_no_bit_of_it_can_change() {
        let owner = OwnerId::default();
        for cursor in [
            Cursor::after(&owner, &feed("a", 1, 5, 1), &change(5)),
            shown_8(),
        ] {
            reads_back(&cursor, &owner);
        }
    }

    fn reads_back(cursor: &Cursor, owner: &OwnerId) {
        let text = cursor.text();
        assert_eq!(Cursor::read(&text, owner).unwrap(), *cursor);
        assert_eq!(
            Cursor::read(&text, &OwnerId::new("other"))
                .unwrap_err()
                .reason,
            Reason::CursorInvalid
        );
        for i in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[i] = if bytes[i] == b'A' { b'B' } else { b'A' };
            let garbled = String::from_utf8(bytes).unwrap();
            assert!(Cursor::read(&garbled, owner).is_err(), "{garbled}");
        }
        for garbled in ["", "x", "now ", &text[1..], &text.repeat(2), "é"] {
            assert!(Cursor::read(garbled, owner).is_err(), "{garbled}");
        }
    }

    #[test]
    fn a_state_that_was_shown_must_be_there_and_needs_room_only_when_it_is_newer() {
        let cursor = shown_8();
        let check = |changes: &[Change]| cursor.check_shown(changes).map_err(|error| error.reason);
        assert_eq!(check(&feed("a", 1, 9, 5).changes), Ok(()));
        let lost = Err(Reason::ResyncRequired);
        assert_eq!(check(&feed("a", 1, 7, 5).changes), lost, "ahead");
        let mut other = feed("a", 1, 9, 5).changes;
        other[3].at = Timestamp(1);
        assert_eq!(check(&other), lost, "another row");
        let later = Cursor::after(&OwnerId::default(), &feed("a", 1, 8, 1), &change(8));
        assert_eq!(
            later.clone().with_shown(cursor.shown()).text(),
            later.text()
        );
    }

    #[test]
    fn a_cursor_holds_in_its_own_history_alone() {
        let owner = OwnerId::default();
        let cursor = Cursor::after(&owner, &feed("a", 1, 5, 1), &change(5));
        assert_eq!(reason(&cursor, &feed("a", 1, 9, 5)), None);
        assert_eq!(
            reason(&cursor, &feed("b", 1, 9, 5)),
            Some(Reason::ResyncRequired),
            "another incarnation"
        );
        assert_eq!(
            reason(&cursor, &feed("a", 1, 4, 5)),
            Some(Reason::ResyncRequired),
            "ahead"
        );
        let mut other = feed("a", 1, 9, 5);
        other.changes[0].at = Timestamp(1);
        assert_eq!(
            reason(&cursor, &other),
            Some(Reason::ResyncRequired),
            "another row"
        );
    }

    #[test]
    fn a_cursor_before_what_is_kept_says_from_where_on_it_is() {
        let owner = OwnerId::default();
        let cursor = Cursor::after(&owner, &feed("a", 1, 5, 1), &change(5));
        assert_eq!(
            reason(&cursor, &feed("a", 6, 9, 5)),
            None,
            "nothing is missing"
        );
        let kept = feed("a", 7, 9, 5);
        let error = cursor.check(&owner, &kept).unwrap_err();
        assert_eq!(error.reason, Reason::CursorCompacted);
        let oldest = Cursor::read(error.oldest_cursor.as_deref().unwrap(), &owner).unwrap();
        assert_eq!(oldest.revision, 6);
        assert_eq!(reason(&oldest, &kept), None);
        assert_eq!(
            reason(&oldest, &feed("a", 1, 9, 6)),
            Some(Reason::ResyncRequired),
            "a restored database that still has the row"
        );
    }

    #[test]
    fn the_cursor_of_an_owner_that_never_wrote_stays_valid() {
        let owner = OwnerId::default();
        let cursor = Cursor::before_row(&owner, &Feed::of_no_owner(), 1);
        assert_eq!(cursor.revision, 0);
        assert_eq!(reason(&cursor, &Feed::of_no_owner()), None);
        assert_eq!(reason(&cursor, &feed("a", 1, 5, 1)), None);
        assert_eq!(
            reason(&cursor, &feed("a", 3, 5, 1)),
            Some(Reason::CursorCompacted)
        );
        let of_a = Cursor::before_row(&owner, &feed("a", 1, 0, 1), 1);
        assert_eq!(reason(&of_a, &feed("a", 1, 5, 1)), None);
        assert_eq!(
            reason(&of_a, &feed("b", 1, 5, 1)),
            Some(Reason::ResyncRequired)
        );
    }
}
