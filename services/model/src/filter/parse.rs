//! The validation rules of conditions on metadata, with their error messages.

use std::fmt::{Arguments, Display, Formatter};

use serde_json::Value;

use super::condition::{Comparison, Condition, Operator, Scalar};
use super::input::MetadataFilter;
use super::path::MetadataPath;
use crate::entry::shorten;
use crate::{Violations, fold};

/// Maximum length of the list of `in` and `not_in`.
const MAX_LIST: usize = 100;

/// Parses a member of `metadata`. It means equality, typed and case-sensitive.
pub(super) fn equality(key: &str, value: Value, violations: &mut Violations) -> Option<Condition> {
    let path = MetadataPath::parse(key).or_else(|| {
        let (key, form, max) = (shorten(key), MetadataPath::FORM, MetadataPath::MAX_CHARS);
        let rule =
            format_args!("has the key `{key}`; a key must be {form}, at most {max} characters");
        refuse(format_args!("metadata"), rule, violations)
    });
    let field = format_args!("metadata.{}", shorten(key));
    let value = scalar(value, true, field, For(None), violations);
    Some(Condition {
        path: path?,
        comparison: Comparison::Eq {
            value: value?,
            case_sensitive: true,
        },
    })
}

/// Parses the member of `metadata_filters` with this index.
pub(super) fn condition(
    filter: MetadataFilter,
    index: usize,
    violations: &mut Violations,
) -> Option<Condition> {
    let MetadataFilter {
        key,
        operator,
        value,
        case_sensitive,
    } = filter;
    let field = format_args!("metadata_filters[{index}]");
    let path = MetadataPath::parse_under(&key, format_args!("{field}.key"), violations);
    let name = operator.as_deref().unwrap_or("eq");
    let Some(operator) = Operator::ALL.into_iter().find(|o| o.as_str() == name) else {
        let names = Operator::ALL.map(Operator::as_str).join(", ");
        let rule = format_args!("is `{}`; it must be one of {names}", shorten(name));
        return refuse(format_args!("{field}.operator"), rule, violations);
    };
    let operand = Operand {
        operator,
        value: value.filter(|value| !value.is_null()),
        case_sensitive: case_sensitive.unwrap_or(false),
        field: format_args!("{field}.value"),
    };
    let comparison = operand.comparison(violations);
    Some(Condition {
        path: path?,
        comparison: comparison?,
    })
}

/// Adds a violation for a field. `rule` is the part of the message after the field's name.
fn refuse<T>(field: Arguments<'_>, rule: Arguments<'_>, violations: &mut Violations) -> Option<T> {
    violations.push(field.to_string(), format!("`{field}` {rule}"));
    None
}

/// The value of a condition, which is parsed according to its operator.
struct Operand<'f> {
    operator: Operator,
    value: Option<Value>,
    case_sensitive: bool,
    /// The value's path in the request. It is only formatted for an error.
    field: Arguments<'f>,
}

impl Operand<'_> {
    fn comparison(self, violations: &mut Violations) -> Option<Comparison> {
        let case_sensitive = self.case_sensitive;
        Some(match self.operator {
            Operator::Eq => Comparison::Eq {
                value: self.scalar(violations)?,
                case_sensitive,
            },
            Operator::Ne => Comparison::Ne {
                value: self.scalar(violations)?,
                case_sensitive,
            },
            Operator::Gt => Comparison::Gt(self.bound(violations)?),
            Operator::Gte => Comparison::Gte(self.bound(violations)?),
            Operator::Lt => Comparison::Lt(self.bound(violations)?),
            Operator::Lte => Comparison::Lte(self.bound(violations)?),
            Operator::In => Comparison::In {
                values: self.list(violations)?,
                case_sensitive,
            },
            Operator::NotIn => Comparison::NotIn {
                values: self.list(violations)?,
                case_sensitive,
            },
            Operator::Exists => self.none(Comparison::Exists, violations)?,
            Operator::NotExists => self.none(Comparison::NotExists, violations)?,
            Operator::Contains => Comparison::Contains {
                text: self.text(violations)?,
                case_sensitive,
            },
            Operator::StartsWith => Comparison::StartsWith {
                text: self.text(violations)?,
                case_sensitive,
            },
            Operator::EndsWith => Comparison::EndsWith {
                text: self.text(violations)?,
                case_sensitive,
            },
            Operator::IsNull => self.none(Comparison::IsNull, violations)?,
            Operator::IsNotNull => self.none(Comparison::IsNotNull, violations)?,
            Operator::ArrayContains => Comparison::ArrayContains {
                value: self.scalar(violations)?,
                case_sensitive,
            },
        })
    }

    /// Parses the comparison of an operator without a value.
    fn none(self, comparison: Comparison, violations: &mut Violations) -> Option<Comparison> {
        match self.value {
            None => Some(comparison),
            Some(_) => {
                let name = self.operator.as_str();
                let rule = format_args!("must be absent: `{name}` takes no value");
                refuse(self.field, rule, violations)
            }
        }
    }

    /// Parses a value of any type.
    fn required(&mut self, violations: &mut Violations) -> Option<Value> {
        self.value.take().or_else(|| {
            let name = self.operator.as_str();
            let rule = format_args!("is required: `{name}` compares with a value");
            refuse(self.field, rule, violations)
        })
    }

    /// Parses a string, a number or a boolean.
    fn scalar(mut self, violations: &mut Violations) -> Option<Scalar> {
        let value = self.required(violations)?;
        let (field, end) = (self.field, For(Some(self.operator)));
        scalar(value, self.case_sensitive, field, end, violations)
    }

    /// Parses a number or a string. The case of a string always matters, because folding does not preserve the order.
    fn bound(mut self, violations: &mut Violations) -> Option<Scalar> {
        let (field, end) = (self.field, For(Some(self.operator)));
        match self.required(violations)? {
            Value::Bool(_) => {
                let rule = format_args!("must be a number or a string{end}");
                refuse(field, rule, violations)
            }
            value => scalar(value, true, field, end, violations),
        }
    }

    /// Parses a list of 1 to [`MAX_LIST`] strings, numbers and booleans.
    fn list(mut self, violations: &mut Violations) -> Option<Vec<Scalar>> {
        let (field, end) = (self.field, For(Some(self.operator)));
        let Value::Array(items) = self.required(violations)? else {
            let rule =
                format_args!("must be a list of 1 to {MAX_LIST} strings, numbers or booleans{end}");
            return refuse(field, rule, violations);
        };
        if items.is_empty() || items.len() > MAX_LIST {
            let (count, name) = (items.len(), self.operator.as_str());
            let rule = format_args!("has {count} members; `{name}` takes 1 to {MAX_LIST}");
            return refuse(field, rule, violations);
        }
        let item = |(i, item)| {
            let field = format_args!("{field}[{i}]");
            scalar(item, self.case_sensitive, field, end, violations)
        };
        items.into_iter().enumerate().map(item).collect()
    }

    /// Parses a string.
    fn text(mut self, violations: &mut Violations) -> Option<String> {
        match self.required(violations)? {
            Value::String(given) => text(given, self.case_sensitive, self.field, violations),
            _ => {
                let rule = format_args!("must be a string{}", For(Some(self.operator)));
                refuse(self.field, rule, violations)
            }
        }
    }
}

/// The end of an error message about the value of an operator. Empty without an operator.
#[derive(Clone, Copy)]
struct For(Option<Operator>);

impl Display for For {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(operator) => write!(f, " for `{}`", operator.as_str()),
            None => Ok(()),
        }
    }
}

fn scalar(
    value: Value,
    case_sensitive: bool,
    field: Arguments<'_>,
    end: For,
    violations: &mut Violations,
) -> Option<Scalar> {
    match value {
        Value::String(given) => text(given, case_sensitive, field, violations).map(Scalar::Text),
        Value::Bool(value) => Some(Scalar::Bool(value)),
        Value::Number(number) => match number.as_i64() {
            Some(int) => Some(Scalar::Int(int)),
            None if number.is_u64() => {
                let rule = format_args!(
                    "is {number}; integers must lie within -9223372036854775808 to 9223372036854775807"
                );
                refuse(field, rule, violations)
            }
            None => number.as_f64().map(Scalar::Float),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => {
            let rule = format_args!("must be a string, a number or a boolean{end}");
            refuse(field, rule, violations)
        }
    }
}

fn text(
    given: String,
    case_sensitive: bool,
    field: Arguments<'_>,
    violations: &mut Violations,
) -> Option<String> {
    if given.contains('\0') {
        let rule = format_args!("contains the character U+0000, which no stored value has");
        return refuse(field, rule, violations);
    }
    Some(if case_sensitive { given } else { fold(&given) })
}
