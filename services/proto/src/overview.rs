//! Conversions of the lists of metadata keys, metadata values and days.

use context_model::{
    DayCount, Error, ListDaysReply, ListDaysRequest, ListMetadataKeysReply,
    ListMetadataKeysRequest, ListMetadataValuesReply, ListMetadataValuesRequest, MetadataKeyCount,
    MetadataValueCount, Result,
};

use crate::reply::{all, missing, try_all};
use crate::v1 as pb;
use crate::value::{value_from_pb, value_to_pb};

same_fields! {
    MetadataKeyCount = MetadataKeyCount { key, entry_count }
    DayCount = DayCount { date, entry_count }
    ListMetadataKeysRequest = ListMetadataKeysRequest { prefix, thread_id, limit, min_revision }
    ListMetadataValuesRequest = ListMetadataValuesRequest { key, prefix, thread_id, limit, min_revision }
    ListDaysRequest = ListDaysRequest { thread_id, start_date, end_date, limit, min_revision }
}

/// Converts between two structs with equal field names, in both directions. The first field is a list.
macro_rules! same_lists {
    ($($model:ident = $pb:ident { $list:ident, $($field:ident),* $(,)? })*) => {$(
        impl From<$model> for pb::$pb {
            fn from(reply: $model) -> Self {
                let $model { $list, $($field),* } = reply;
                Self { $list: all($list), $($field),* }
            }
        }

        impl From<pb::$pb> for $model {
            fn from(reply: pb::$pb) -> Self {
                let pb::$pb { $list, $($field),* } = reply;
                Self { $list: all($list), $($field),* }
            }
        }
    )*};
}

same_lists! {
    ListMetadataKeysReply = ListMetadataKeysResponse { keys, total, has_more, scanned, complete, revision }
    ListDaysReply = ListDaysResponse { days, has_more, scanned, complete, revision }
}

impl From<MetadataValueCount> for pb::MetadataValueCount {
    fn from(count: MetadataValueCount) -> Self {
        let MetadataValueCount { value, entry_count } = count;
        Self {
            value: Some(value_to_pb(value)),
            entry_count,
        }
    }
}

impl TryFrom<pb::MetadataValueCount> for MetadataValueCount {
    type Error = Error;

    fn try_from(count: pb::MetadataValueCount) -> Result<Self> {
        let pb::MetadataValueCount { value, entry_count } = count;
        let value = value.ok_or_else(|| missing("value"))?;
        Ok(Self {
            value: value_from_pb(value, &|| "value".to_owned())?,
            entry_count,
        })
    }
}

impl From<ListMetadataValuesReply> for pb::ListMetadataValuesResponse {
    fn from(reply: ListMetadataValuesReply) -> Self {
        let ListMetadataValuesReply {
            values,
            total,
            has_more,
            scanned,
            complete,
            revision,
        } = reply;
        Self {
            values: all(values),
            total,
            has_more,
            scanned,
            complete,
            revision,
        }
    }
}

impl TryFrom<pb::ListMetadataValuesResponse> for ListMetadataValuesReply {
    type Error = Error;

    fn try_from(reply: pb::ListMetadataValuesResponse) -> Result<Self> {
        let pb::ListMetadataValuesResponse {
            values,
            total,
            has_more,
            scanned,
            complete,
            revision,
        } = reply;
        Ok(Self {
            values: try_all(values)?,
            total,
            has_more,
            scanned,
            complete,
            revision,
        })
    }
}
