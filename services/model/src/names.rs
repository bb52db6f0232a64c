//! Closed sets of names in requests, and their schemas in the OpenAPI document.

use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::{Reason, Scope};

/// Declares an enum whose values have names in requests and replies.
macro_rules! names {
    ($(#[$doc:meta])* $type:ident { $($(#[$value_doc:meta])* $value:ident $name:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, utoipa::ToSchema)]
        pub enum $type {
            $($(#[$value_doc])* #[schema(rename = $name)] $value,)+
        }

        impl $type {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$value),+];

            /// The name in requests and replies.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }

            /// The value with this name.
            #[must_use]
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == name)
            }
        }
    };
}

names! {
    /// How a full-text query is read.
    FtsMode {
        /// Words, stemmed.
        Match "match",
        /// Every word as a prefix.
        Prefix "prefix",
        /// The words in this order.
        Phrase "phrase",
        /// AND, OR, NOT, parentheses, quotes, trailing `*`.
        Boolean "boolean",
    }
}

names! {
    /// How a hybrid search fuses the results of its two searches.
    FusionMethod {
        /// By rank: reciprocal rank fusion.
        Rrf "rrf",
        /// By score: a weighted sum.
        Convex "convex",
    }
}

names! {
    /// A search that a hybrid search can fuse.
    SearchMode {
        /// Full-text search.
        Fts "fts",
        /// Semantic search.
        Semantic "semantic",
    }
}

names! {
    /// What a hybrid search searches.
    Include {
        /// Context entries.
        Contexts "contexts",
        /// Artifacts.
        Artifacts "artifacts",
    }
}

names! {
    /// How artifacts are searched.
    ArtifactSearchMode {
        /// The query is a substring of the title or the content, ignoring case. Newest first.
        Substring "substring",
        /// Full-text and semantic search, as in hybrid search. Best first.
        Ranked "ranked",
    }
}

names! {
    /// The resource that a key is restricted to.
    Only {
        /// Context entries, threads and statistics.
        Contexts "contexts",
        /// Artifacts.
        Artifacts "artifacts",
    }
}

names! {
    /// What happened to an entry or an artifact.
    ChangeOperation {
        /// It was created.
        Created "created",
        /// It was updated.
        Updated "updated",
        /// It was deleted.
        Deleted "deleted",
        /// An earlier version of an artifact was restored.
        Restored "restored",
        /// It no longer satisfies the filters, or is gone. The caller may never have seen it.
        Left "left",
    }
}

names! {
    /// What was changed.
    ChangedEntity {
        /// A context entry.
        Context "context",
        /// An artifact.
        Artifact "artifact",
    }
}

/// Declares the schema of a name in a reply: one of the names of an enum, or any other string, because a later version
/// of the service may add names. A client that is generated from this schema accepts the new names.
macro_rules! or_later {
    ($($type:ident: $known:ty,)+) => {
        $(
            #[doc = concat!("In a schema: a name of [`", stringify!($known), "`], or one that a later version adds.")]
            #[derive(Debug)]
            pub enum $type {}

            impl PartialSchema for $type {
                fn schema() -> RefOr<Schema> {
                    AnyOfBuilder::new()
                        .item(Ref::from_schema_name(<$known>::name()))
                        .item(ObjectBuilder::new().schema_type(Type::String))
                        .into()
                }
            }

            impl ToSchema for $type {
                fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                    schemas.push((<$known>::name().into_owned(), <$known>::schema()));
                }
            }
        )+
    };
}

or_later! {
    ChangeOperationOrLater: ChangeOperation,
    ChangedEntityOrLater: ChangedEntity,
    FtsModeOrLater: FtsMode,
    FusionMethodOrLater: FusionMethod,
    OnlyOrLater: Only,
    ReasonOrLater: Reason,
    ScopeOrLater: Scope,
    SearchModeOrLater: SearchMode,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_in_requests_and_in_the_schema() {
        fn of<T: PartialSchema>() -> serde_json::Value {
            serde_json::to_value(T::schema()).unwrap()["enum"].clone()
        }
        let modes: Vec<_> = FtsMode::ALL.iter().map(|mode| mode.as_str()).collect();
        assert_eq!(of::<FtsMode>(), serde_json::json!(modes));
        assert_eq!(FtsMode::parse("phrase"), Some(FtsMode::Phrase));
        assert_eq!(FtsMode::parse("Phrase"), None);
        let operators = crate::Operator::ALL.map(crate::Operator::as_str);
        assert_eq!(of::<crate::Operator>(), serde_json::json!(operators));
        let reasons = crate::Reason::ALL.map(crate::Reason::as_str);
        assert_eq!(of::<crate::Reason>(), serde_json::json!(reasons.to_vec()));
        let scopes = crate::Scope::ALL.map(crate::Scope::as_str);
        assert_eq!(of::<crate::Scope>(), serde_json::json!(scopes));
    }
}
