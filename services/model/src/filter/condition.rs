//! Conditions on metadata fields.

use super::path::MetadataPath;
use crate::fold;

/// One condition on one metadata field.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The field.
    pub path: MetadataPath,
    /// The comparison that must hold.
    pub comparison: Comparison,
}

/// A value to compare with.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// A string. It is already folded when the comparison ignores case.
    Text(String),
    /// An integer.
    Int(i64),
    /// A finite number with a fraction or exponent.
    Float(f64),
    /// A boolean.
    Bool(bool),
}

impl Scalar {
    /// The value for comparisons that ignore case: a string is folded (see [`fold`]).
    #[must_use]
    pub fn folded(&self) -> Self {
        match self {
            Self::Text(text) => Self::Text(fold(text)),
            Self::Int(_) | Self::Float(_) | Self::Bool(_) => self.clone(),
        }
    }
}

/// A comparison with a field's value. With `case_sensitive`, strings are compared unchanged. Otherwise both sides are
/// folded (see [`fold`]). The strings in this type are then already folded.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "the operators are described by the contract's table, field names by their types"
)]
pub enum Comparison {
    Eq {
        value: Scalar,
        case_sensitive: bool,
    },
    Ne {
        value: Scalar,
        case_sensitive: bool,
    },
    Gt(Scalar),
    Gte(Scalar),
    Lt(Scalar),
    Lte(Scalar),
    In {
        values: Vec<Scalar>,
        case_sensitive: bool,
    },
    NotIn {
        values: Vec<Scalar>,
        case_sensitive: bool,
    },
    Exists,
    NotExists,
    IsNull,
    IsNotNull,
    Contains {
        text: String,
        case_sensitive: bool,
    },
    StartsWith {
        text: String,
        case_sensitive: bool,
    },
    EndsWith {
        text: String,
        case_sensitive: bool,
    },
    ArrayContains {
        value: Scalar,
        case_sensitive: bool,
    },
}

impl Comparison {
    /// The operator.
    #[must_use]
    pub const fn operator(&self) -> Operator {
        match self {
            Self::Eq { .. } => Operator::Eq,
            Self::Ne { .. } => Operator::Ne,
            Self::Gt(_) => Operator::Gt,
            Self::Gte(_) => Operator::Gte,
            Self::Lt(_) => Operator::Lt,
            Self::Lte(_) => Operator::Lte,
            Self::In { .. } => Operator::In,
            Self::NotIn { .. } => Operator::NotIn,
            Self::Exists => Operator::Exists,
            Self::NotExists => Operator::NotExists,
            Self::IsNull => Operator::IsNull,
            Self::IsNotNull => Operator::IsNotNull,
            Self::Contains { .. } => Operator::Contains,
            Self::StartsWith { .. } => Operator::StartsWith,
            Self::EndsWith { .. } => Operator::EndsWith,
            Self::ArrayContains { .. } => Operator::ArrayContains,
        }
    }
}

/// How a condition compares the field's value with its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, utoipa::ToSchema)]
#[schema(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is named as in requests")]
pub enum Operator {
    Eq,
    Ne,
    Gt,
    Gte,
    Lt,
    Lte,
    In,
    NotIn,
    Exists,
    NotExists,
    Contains,
    StartsWith,
    EndsWith,
    IsNull,
    IsNotNull,
    ArrayContains,
}

impl Operator {
    /// Every operator.
    pub const ALL: [Self; 16] = [
        Self::Eq,
        Self::Ne,
        Self::Gt,
        Self::Gte,
        Self::Lt,
        Self::Lte,
        Self::In,
        Self::NotIn,
        Self::Exists,
        Self::NotExists,
        Self::Contains,
        Self::StartsWith,
        Self::EndsWith,
        Self::IsNull,
        Self::IsNotNull,
        Self::ArrayContains,
    ];

    /// The name in requests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Ne => "ne",
            Self::Gt => "gt",
            Self::Gte => "gte",
            Self::Lt => "lt",
            Self::Lte => "lte",
            Self::In => "in",
            Self::NotIn => "not_in",
            Self::Exists => "exists",
            Self::NotExists => "not_exists",
            Self::Contains => "contains",
            Self::StartsWith => "starts_with",
            Self::EndsWith => "ends_with",
            Self::IsNull => "is_null",
            Self::IsNotNull => "is_not_null",
            Self::ArrayContains => "array_contains",
        }
    }
}
