//! The gRPC contract `context.v1`: generated messages, client and server, and their conversions to and from the types
//! of `context-model`.
//!
//! The server converts messages of requests to model types, and model types of replies to messages. The gateway
//! converts in the opposite direction. A conversion is a `TryFrom` where metadata can be malformed or a message can
//! lack a field, and a `From` elsewhere. Conversions name every field of a model type, so that a field added to it does
//! not compile until it is handled.

#[allow(clippy::all, reason = "generated")]
/// Generated from `proto/context/v1`.
pub mod v1 {
    tonic::include_proto!("context.v1");
}

#[macro_use]
mod reply;
mod artifacts;
mod changes;
mod keys;
mod object;
mod overview;
mod request;
mod status;
mod value;
mod write;

pub use object::Object;
pub use status::{error_from_status, is_from_service, status_from_error};

/// The serialized `FileDescriptorSet` of the contract, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
