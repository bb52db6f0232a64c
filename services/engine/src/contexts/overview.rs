//! Listing metadata keys and values, and counting entries by day.
//!
//! No index has these. Each call therefore reads a bounded number of the newest entries, and the reply says how many.

use context_model::{
    DayCount, Error, Filter, FilterInput, JsonObject, ListDaysReply, ListDaysRequest,
    ListMetadataKeysReply, ListMetadataKeysRequest, ListMetadataValuesReply,
    ListMetadataValuesRequest, MAX_KEY_BYTES, MetadataPath, ObjectText, Operation, Result,
    Violations, count_keys, count_values,
};

use super::Contexts;
use crate::access::Caller;
use crate::error::store_error;
use crate::{read, validate};

/// Default number of keys or values in one reply.
const DEFAULT_FIELDS: i64 = 100;
/// Maximum number of keys or values in one reply.
const MAX_FIELDS: i64 = 1000;
/// Maximum number of entries whose metadata one call reads.
const MAX_OBJECTS: u32 = 10_000;
/// Longer metadata is not read, so that one call reads at most 41 MB of text.
const MAX_OBJECT_BYTES: u32 = 4096;
/// Counted keys take at most this many bytes for each byte of metadata, and values fewer: a field has at least 6 bytes
/// of JSON, and its path at most 512 bytes and an overhead of 100.
const COUNTED_PER_BYTE: usize = 102;
/// Maximum number of characters of a prefix.
const MAX_PREFIX_CHARS: usize = 256;
/// Default number of days in one reply.
const DEFAULT_DAYS: i64 = 30;
/// Maximum number of days in one reply.
const MAX_DAYS: i64 = 366;
/// Maximum number of entries that one call counts.
const MAX_COUNTED: u32 = 100_000;

/// The validated parameters that lists of keys and of values share.
struct Fields {
    filter: Filter,
    prefix: Option<String>,
    limit: usize,
    min_revision: Option<i64>,
}

/// What was counted in a sample of metadata.
struct Counted<T> {
    shown: Vec<T>,
    total: i64,
    has_more: bool,
    scanned: i64,
    complete: bool,
    revision: i64,
}

impl Contexts {
    /// Lists the keys that metadata has, with the number of entries that have them, most frequent first, then by name.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `OVERLOADED`; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn list_metadata_keys(
        &self,
        caller: &Caller,
        request: ListMetadataKeysRequest,
    ) -> Result<ListMetadataKeysReply> {
        caller.require(Operation::ListMetadataKeys)?;
        let ListMetadataKeysRequest {
            prefix,
            thread_id,
            limit,
            min_revision,
        } = request;
        let mut violations = Violations::default();
        let fields = fields(
            caller,
            thread_id,
            prefix,
            limit,
            min_revision,
            &mut violations,
        );
        let fields = violations.finish(fields)?;
        let Counted {
            shown,
            total,
            has_more,
            scanned,
            complete,
            revision,
        } = self
            .counted(caller, fields, |objects, prefix| {
                count_keys(objects, prefix)
            })
            .await?;
        Ok(ListMetadataKeysReply {
            keys: shown,
            total,
            has_more,
            scanned,
            complete,
            revision,
        })
    }

    /// Lists the scalar values of a metadata key, with the number of entries that have them, most frequent first, then
    /// by their JSON text.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `OVERLOADED`; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn list_metadata_values(
        &self,
        caller: &Caller,
        request: ListMetadataValuesRequest,
    ) -> Result<ListMetadataValuesReply> {
        caller.require(Operation::ListMetadataValues)?;
        let ListMetadataValuesRequest {
            key,
            prefix,
            thread_id,
            limit,
            min_revision,
        } = request;
        let mut violations = Violations::default();
        let path = MetadataPath::parse_under(&key, "key", &mut violations);
        let fields = fields(
            caller,
            thread_id,
            prefix,
            limit,
            min_revision,
            &mut violations,
        );
        let fields = violations.finish(fields)?;
        let Some(path) = path else {
            return Err(Error::invalid("key", "`key` is required"));
        };
        let Counted {
            shown,
            total,
            has_more,
            scanned,
            complete,
            revision,
        } = self
            .counted(caller, fields, move |objects, prefix| {
                count_values(objects, &path, prefix)
            })
            .await?;
        Ok(ListMetadataValuesReply {
            values: shown,
            total,
            has_more,
            scanned,
            complete,
            revision,
        })
    }

    /// Counts entries by the day of their creation in UTC, newest day first. Days without entries are left out.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; `SCOPE_MISSING` without `read`; the store's errors.
    pub async fn list_days(
        &self,
        caller: &Caller,
        request: ListDaysRequest,
    ) -> Result<ListDaysReply> {
        caller.require(Operation::ListDays)?;
        let ListDaysRequest {
            thread_id,
            start_date,
            end_date,
            limit,
            min_revision,
        } = request;
        let mut violations = Violations::default();
        let given = FilterInput {
            thread_id,
            start_date,
            end_date,
            ..FilterInput::default()
        };
        let (filter, _) = caller.filter(given, &mut violations);
        let page = validate::page(
            limit,
            None,
            DEFAULT_DAYS,
            MAX_DAYS,
            i64::MAX,
            &mut violations,
        );
        let min_revision = validate::min_revision(min_revision, &mut violations);
        violations.finish(())?;
        let found = self
            .store
            .days(&caller.owner, filter, MAX_COUNTED, read::at(min_revision))
            .await
            .map_err(store_error)?;
        let scanned = found.days.iter().map(|(_, count)| count).sum();
        let limit = page.limit as usize;
        let has_later_pages = found.days.len() > limit;
        let counted_all = scanned < i64::from(MAX_COUNTED);
        Ok(ListDaysReply {
            days: found
                .days
                .into_iter()
                .take(limit)
                .map(|(day, count)| DayCount::of(day, count))
                .collect(),
            has_more: has_later_pages || !counted_all,
            scanned,
            // Only the oldest day that was counted can be incomplete.
            complete: has_later_pages || counted_all,
            revision: found.revision,
        })
    }

    /// Counts in the metadata of the newest entries, and returns the first `limit` counts.
    ///
    /// # Errors
    /// `OVERLOADED` if the caller's memory budget is too small; the store's errors.
    async fn counted<T: Send + 'static>(
        &self,
        caller: &Caller,
        fields: Fields,
        count: impl FnOnce(&mut dyn Iterator<Item = JsonObject>, Option<&str>) -> Vec<T>
        + Send
        + 'static,
    ) -> Result<Counted<T>> {
        let Fields {
            filter,
            prefix,
            limit,
            min_revision,
        } = fields;
        let sample = self
            .store
            .metadata_sample(
                &caller.owner,
                filter,
                MAX_OBJECTS,
                MAX_OBJECT_BYTES,
                read::at(min_revision),
            )
            .await
            .map_err(store_error)?;
        let selected = sample.objects.len();
        let texts = sample.objects.iter().flatten();
        let bytes: usize = texts.map(|text| text.as_str().len()).sum();
        // The texts, and what is counted in them.
        let counted = MAX_KEY_BYTES.min(bytes.saturating_mul(COUNTED_PER_BYTE));
        caller.memory.take((bytes + counted) as u64)?;
        let memory = caller.memory.clone();
        // Parsing 41 MB takes too long for an async thread.
        let counting = tokio::task::spawn_blocking(move || {
            let mut scanned = 0;
            // One parsed object at a time: it takes up to 36 times as much memory as its text.
            let mut objects = sample
                .objects
                .into_iter()
                .flatten()
                .filter_map(|text: ObjectText| text.to_object().ok())
                .inspect(|_| scanned += 1);
            let counts = count(&mut objects, prefix.as_deref());
            // The memory is counted until here, even if the caller has left.
            drop(memory);
            (scanned, counts)
        });
        let (scanned, mut shown) = counting.await.map_err(Error::internal)?;
        let total = shown.len();
        shown.truncate(limit);
        Ok(Counted {
            has_more: total > shown.len(),
            total: to_i64(total),
            scanned: to_i64(scanned),
            complete: scanned == selected && selected < MAX_OBJECTS as usize,
            shown,
            revision: sample.revision,
        })
    }
}

fn fields(
    caller: &Caller,
    thread_id: Option<String>,
    prefix: Option<String>,
    limit: Option<i64>,
    min_revision: Option<i64>,
    violations: &mut Violations,
) -> Fields {
    let of_thread = FilterInput {
        thread_id,
        ..FilterInput::default()
    };
    let (filter, _) = caller.filter(of_thread, violations);
    let prefix = prefix.map(|prefix| {
        if prefix.trim().is_empty() {
            violations.push("prefix", "`prefix` is blank; leave it out for all");
        }
        let chars = prefix.chars().count();
        if chars > MAX_PREFIX_CHARS {
            violations.push(
                "prefix",
                format!("`prefix` has {chars} characters; the maximum is {MAX_PREFIX_CHARS}"),
            );
        }
        prefix.to_lowercase()
    });
    let page = validate::page(
        limit,
        None,
        DEFAULT_FIELDS,
        MAX_FIELDS,
        i64::MAX,
        violations,
    );
    Fields {
        filter,
        prefix,
        limit: page.limit as usize,
        min_revision: validate::min_revision(min_revision, violations),
    }
}

fn to_i64(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
