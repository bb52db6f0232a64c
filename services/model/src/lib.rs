//! The plain domain types of the context service.
//!
//! Requests and replies have exactly the JSON shape of REST bodies and of MCP tool arguments and
//! results; `context-proto` converts gRPC messages to and from them. The parsers of domain types
//! (thread ids, tags, filters, images) are here too, so that each rule and its error sentence exist
//! once.
//!
//! This crate does no I/O, except that [`local`] finds and creates directories. It does not depend on a database, on
//! status codes or on a transport.
//!
//! ```
//! use context_model::{Filter, FilterInput, Violations};
//!
//! let mut violations = Violations::default();
//! let input = FilterInput { thread_id: Some(" t1 ".into()), ..FilterInput::default() };
//! let filter = Filter::parse(input, &mut violations);
//! assert!(violations.is_empty());
//! assert_eq!(filter.thread_id.unwrap().as_str(), "t1");
//! ```

#[macro_use]
mod search;
mod artifact;
mod artifacts;
mod by_name;
mod changes;
mod contexts;
mod days;
mod decode;
mod entry;
mod error;
mod fields;
mod filter;
mod host;
mod image;
mod keys;
mod limits;
pub mod local;
mod metadata;
mod names;
mod nearest;
mod object_text;
mod operation;
mod reason;
mod reserved_key;
mod scope;
mod secret;
mod shown_url;
mod statistics;
mod tags;
mod thread;
mod thread_set;
mod time;
mod variables;
pub mod warnings;

pub use artifact::{
    ArtifactId, ArtifactPath, ArtifactState, ArtifactUpdate, ContentChange, Edit,
    MAX_ARTIFACT_CHARS, MAX_PATH_CHARS, MAX_TITLE_CHARS, NewArtifact, PathChange, TitleChange,
    check_content, invalid_input,
};
pub use artifacts::*;
pub use changes::*;
pub use contexts::*;
pub use days::*;
pub use decode::{
    INTEGER_OF_64_BITS, decode, decode_parameter, decode_slice, given_again, unknown_field,
    wrong_type,
};
pub use entry::*;
pub use error::{Error, Result, Violation, Violations};
pub use fields::*;
pub use filter::{
    Comparison, Condition, Filter, FilterInput, MetadataFilter, MetadataPath, Operator, Scalar,
};
pub use host::check_host;
pub use image::{ImageBytes, ImageInput, NewImage};
pub use keys::*;
pub use limits::{Limits, max_message_bytes};
pub use metadata::{Metadata, MetadataChange, fold, held_bytes};
pub use names::*;
pub use nearest::nearest;
pub use object_text::ObjectText;
pub use operation::{DeadlineClass, Operation, Resource};
pub use reason::Reason;
pub use reserved_key::{RESERVED_KEY, ReservedKey};
pub use scope::Scope;
pub use search::*;
pub use secret::Secret;
pub use shown_url::shown_url;
pub use statistics::*;
pub use tags::*;
pub use thread::*;
pub use thread_set::{ThreadPattern, ThreadSet, end_of_prefix};
pub use time::Timestamp;
pub use variables::expand_variables;

/// The JSON object that carries metadata in requests and replies.
pub type JsonObject = serde_json::Map<String, serde_json::Value>;
