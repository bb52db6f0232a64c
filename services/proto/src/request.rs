//! Conversions of requests, in both directions.

use context_model::{
    DeleteContextBatchRequest, DeleteContextRequest, Error, FilterInput, FtsSearchContextRequest,
    GetContextByIdsRequest, HybridSearchContextRequest, ImageBytes, ImageInput, ListThreadsRequest,
    MetadataFilter, Result, SearchContextRequest, SemanticSearchContextRequest,
    StoreContextBatchRequest, StoreContextRequest, UpdateContextBatchRequest, UpdateContextRequest,
};

use crate::object::Object;
use crate::v1 as pb;
use crate::value::{object_from_pb, value_from_pb, value_to_pb};

fn strings(list: pb::StringList) -> Vec<String> {
    let pb::StringList { values } = list;
    values
}

fn string_list(values: Vec<String>) -> pb::StringList {
    pb::StringList { values }
}

fn id_list(values: Vec<i64>) -> pb::IdList {
    pb::IdList { values }
}

pub(crate) fn images_from_pb(list: pb::ImageList) -> Result<Vec<ImageInput>> {
    let pb::ImageList { images } = list;
    images
        .into_iter()
        .enumerate()
        .map(|(i, image)| {
            let pb::Image {
                data,
                mime_type,
                metadata,
            } = image;
            let metadata = metadata
                .map(|m| object_from_pb(m, &format!("images[{i}].metadata")))
                .transpose()?;
            Ok(ImageInput {
                data: ImageBytes(data),
                mime_type,
                metadata,
            })
        })
        .collect()
}

pub(crate) fn images_to_pb(images: Vec<ImageInput>) -> pb::ImageList {
    let images = images
        .into_iter()
        .map(|image| {
            let ImageInput {
                data: ImageBytes(data),
                mime_type,
                metadata,
            } = image;
            pb::Image {
                data,
                mime_type,
                metadata: metadata.as_ref().map(Object::from),
            }
        })
        .collect();
    pb::ImageList { images }
}

impl TryFrom<pb::StoreContextRequest> for StoreContextRequest {
    type Error = Error;

    fn try_from(request: pb::StoreContextRequest) -> Result<Self> {
        let pb::StoreContextRequest {
            thread_id,
            source,
            text,
            images,
            metadata,
            tags,
        } = request;
        Ok(Self {
            thread_id,
            source,
            text,
            images: images.map(images_from_pb).transpose()?,
            metadata: metadata
                .map(|m| object_from_pb(m, "metadata"))
                .transpose()?,
            tags: tags.map(strings),
        })
    }
}

impl From<StoreContextRequest> for pb::StoreContextRequest {
    fn from(request: StoreContextRequest) -> Self {
        let StoreContextRequest {
            thread_id,
            source,
            text,
            images,
            metadata,
            tags,
        } = request;
        Self {
            thread_id,
            source,
            text,
            images: images.map(images_to_pb),
            metadata: metadata.as_ref().map(Object::from),
            tags: tags.map(string_list),
        }
    }
}

/// Converts the items of a batch. An error names the item's position, such as `entries[3]`.
fn items<P, M: TryFrom<P, Error = Error>>(items: Vec<P>, field: &str) -> Result<Vec<M>> {
    items
        .into_iter()
        .enumerate()
        .map(|(i, item)| M::try_from(item).map_err(|e| e.in_item(&format!("{field}[{i}]"))))
        .collect()
}

impl TryFrom<pb::StoreContextBatchRequest> for StoreContextBatchRequest {
    type Error = Error;

    fn try_from(request: pb::StoreContextBatchRequest) -> Result<Self> {
        let pb::StoreContextBatchRequest { entries, atomic } = request;
        Ok(Self {
            entries: items(entries, "entries")?,
            atomic,
        })
    }
}

impl From<StoreContextBatchRequest> for pb::StoreContextBatchRequest {
    fn from(request: StoreContextBatchRequest) -> Self {
        let StoreContextBatchRequest { entries, atomic } = request;
        Self {
            entries: entries.into_iter().map(Into::into).collect(),
            atomic,
        }
    }
}

impl From<pb::GetContextByIdsRequest> for GetContextByIdsRequest {
    fn from(request: pb::GetContextByIdsRequest) -> Self {
        let pb::GetContextByIdsRequest {
            context_ids,
            include_images,
            min_revision,
        } = request;
        Self {
            context_ids,
            include_images,
            min_revision,
        }
    }
}

impl From<GetContextByIdsRequest> for pb::GetContextByIdsRequest {
    fn from(request: GetContextByIdsRequest) -> Self {
        let GetContextByIdsRequest {
            context_ids,
            include_images,
            min_revision,
        } = request;
        Self {
            context_ids,
            include_images,
            min_revision,
        }
    }
}

impl TryFrom<pb::UpdateContextRequest> for UpdateContextRequest {
    type Error = Error;

    fn try_from(request: pb::UpdateContextRequest) -> Result<Self> {
        let pb::UpdateContextRequest {
            context_id,
            text,
            metadata,
            metadata_patch,
            tags,
            images,
            expected_version,
        } = request;
        Ok(Self {
            context_id,
            text,
            metadata: metadata
                .map(|m| object_from_pb(m, "metadata"))
                .transpose()?,
            metadata_patch: metadata_patch
                .map(|m| object_from_pb(m, "metadata_patch"))
                .transpose()?,
            tags: tags.map(strings),
            images: images.map(images_from_pb).transpose()?,
            expected_version,
        })
    }
}

impl From<UpdateContextRequest> for pb::UpdateContextRequest {
    fn from(request: UpdateContextRequest) -> Self {
        let UpdateContextRequest {
            context_id,
            text,
            metadata,
            metadata_patch,
            tags,
            images,
            expected_version,
        } = request;
        Self {
            context_id,
            text,
            metadata: metadata.as_ref().map(Object::from),
            metadata_patch: metadata_patch.as_ref().map(Object::from),
            tags: tags.map(string_list),
            images: images.map(images_to_pb),
            expected_version,
        }
    }
}

impl TryFrom<pb::UpdateContextBatchRequest> for UpdateContextBatchRequest {
    type Error = Error;

    fn try_from(request: pb::UpdateContextBatchRequest) -> Result<Self> {
        let pb::UpdateContextBatchRequest { updates, atomic } = request;
        Ok(Self {
            updates: items(updates, "updates")?,
            atomic,
        })
    }
}

impl From<UpdateContextBatchRequest> for pb::UpdateContextBatchRequest {
    fn from(request: UpdateContextBatchRequest) -> Self {
        let UpdateContextBatchRequest { updates, atomic } = request;
        Self {
            updates: updates.into_iter().map(Into::into).collect(),
            atomic,
        }
    }
}

impl From<pb::DeleteContextRequest> for DeleteContextRequest {
    fn from(request: pb::DeleteContextRequest) -> Self {
        let pb::DeleteContextRequest {
            context_ids,
            thread_id,
        } = request;
        Self {
            context_ids: context_ids.map(|ids| ids.values),
            thread_id,
        }
    }
}

impl From<DeleteContextRequest> for pb::DeleteContextRequest {
    fn from(request: DeleteContextRequest) -> Self {
        let DeleteContextRequest {
            context_ids,
            thread_id,
        } = request;
        Self {
            context_ids: context_ids.map(id_list),
            thread_id,
        }
    }
}

impl From<pb::DeleteContextBatchRequest> for DeleteContextBatchRequest {
    fn from(request: pb::DeleteContextBatchRequest) -> Self {
        let pb::DeleteContextBatchRequest {
            context_ids,
            thread_ids,
            source,
            older_than_days,
        } = request;
        Self {
            context_ids: context_ids.map(|ids| ids.values),
            thread_ids: thread_ids.map(strings),
            source,
            older_than_days,
        }
    }
}

impl From<DeleteContextBatchRequest> for pb::DeleteContextBatchRequest {
    fn from(request: DeleteContextBatchRequest) -> Self {
        let DeleteContextBatchRequest {
            context_ids,
            thread_ids,
            source,
            older_than_days,
        } = request;
        Self {
            context_ids: context_ids.map(id_list),
            thread_ids: thread_ids.map(string_list),
            source,
            older_than_days,
        }
    }
}

pub(crate) fn filters_from_pb(filter: pb::Filter) -> Result<FilterInput> {
    let pb::Filter {
        thread_id,
        source,
        tags,
        content_type,
        metadata,
        metadata_filters,
        start_date,
        end_date,
    } = filter;
    Ok(FilterInput {
        thread_id,
        source,
        tags: tags.map(strings),
        content_type,
        metadata: metadata
            .map(|m| object_from_pb(m, "metadata"))
            .transpose()?,
        metadata_filters: conditions_from_pb(metadata_filters)?,
        start_date,
        end_date,
    })
}

/// `None` if there are no conditions.
pub(crate) fn conditions_from_pb(
    conditions: Vec<pb::MetadataFilter>,
) -> Result<Option<Vec<MetadataFilter>>> {
    let condition = |(i, condition): (usize, pb::MetadataFilter)| {
        let pb::MetadataFilter {
            key,
            operator,
            value,
            case_sensitive,
        } = condition;
        let value = value
            .map(|v| value_from_pb(v, &|| format!("metadata_filters[{i}].value")))
            .transpose()?;
        Ok(MetadataFilter {
            key,
            operator,
            value,
            case_sensitive,
        })
    };
    let conditions: Vec<MetadataFilter> = conditions
        .into_iter()
        .enumerate()
        .map(condition)
        .collect::<Result<_>>()?;
    Ok((!conditions.is_empty()).then_some(conditions))
}

pub(crate) fn conditions_to_pb(conditions: Option<Vec<MetadataFilter>>) -> Vec<pb::MetadataFilter> {
    let condition = |condition: MetadataFilter| {
        let MetadataFilter {
            key,
            operator,
            value,
            case_sensitive,
        } = condition;
        pb::MetadataFilter {
            key,
            operator,
            value: value.map(value_to_pb),
            case_sensitive,
        }
    };
    let conditions = conditions.unwrap_or_default().into_iter();
    conditions.map(condition).collect()
}

pub(crate) fn filters_to_pb(filters: FilterInput) -> Option<pb::Filter> {
    if filters == FilterInput::default() {
        return None;
    }
    let FilterInput {
        thread_id,
        source,
        tags,
        content_type,
        metadata,
        metadata_filters,
        start_date,
        end_date,
    } = filters;
    Some(pb::Filter {
        thread_id,
        source,
        tags: tags.map(string_list),
        content_type,
        metadata: metadata.as_ref().map(Object::from),
        metadata_filters: conditions_to_pb(metadata_filters),
        start_date,
        end_date,
    })
}

/// Converts a search request, in both directions: its own fields by name, then the fields that all search requests
/// share.
macro_rules! search_request {
    ($name:ident, { $($field:ident $(: $from:expr, $to:expr)?),* $(,)? }) => {
        impl TryFrom<pb::$name> for $name {
            type Error = Error;

            fn try_from(request: pb::$name) -> Result<Self> {
                let pb::$name { $($field,)* filter, limit, offset, include_images, explain_query, min_revision } = request;
                let filters = filter.map(filters_from_pb).transpose()?.unwrap_or_default();
                $($(let $field = $field.map($from);)?)*
                Ok(Self { $($field,)* limit, offset, filters, include_images, explain_query, min_revision })
            }
        }

        impl From<$name> for pb::$name {
            fn from(request: $name) -> Self {
                let $name { $($field,)* limit, offset, filters, include_images, explain_query, min_revision } = request;
                let filter = filters_to_pb(filters);
                $($(let $field = $field.map($to);)?)*
                Self { $($field,)* filter, limit, offset, include_images, explain_query, min_revision }
            }
        }
    };
}

search_request!(SearchContextRequest, {});
search_request!(SemanticSearchContextRequest, { query, min_relevance });
search_request!(FtsSearchContextRequest, { query, mode, highlight });
search_request!(HybridSearchContextRequest, { query, search_modes: strings, string_list, include: strings, string_list, fusion_method, rrf_k, min_relevance, highlight });

impl From<pb::ListThreadsRequest> for ListThreadsRequest {
    fn from(request: pb::ListThreadsRequest) -> Self {
        let pb::ListThreadsRequest {
            limit,
            offset,
            name,
            min_revision,
        } = request;
        Self {
            limit,
            offset,
            name,
            min_revision,
        }
    }
}

impl From<ListThreadsRequest> for pb::ListThreadsRequest {
    fn from(request: ListThreadsRequest) -> Self {
        let ListThreadsRequest {
            limit,
            offset,
            name,
            min_revision,
        } = request;
        Self {
            limit,
            offset,
            name,
            min_revision,
        }
    }
}
