//! `context.v1.Object`, held as the encoded bytes of its message.
//!
//! A reply's metadata comes from the database as JSON text. It is encoded in one pass over that text, without building
//! a tree of messages.

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};

use crate::v1 as pb;

/// The number of the field `fields` in `context.v1.Object`.
const MEMBERS: u32 = 1;

/// A JSON object as the encoded members of its message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object {
    members: Vec<u8>,
}

/// A member of an object: the message that protobuf defines for a map entry.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Member {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<pb::Value>,
}

#[derive(Clone, PartialEq, Message)]
struct Members {
    #[prost(message, repeated, tag = "1")]
    members: Vec<Member>,
}

impl Object {
    /// An object from its encoded members.
    pub(crate) const fn of_encoded(members: Vec<u8>) -> Self {
        Self { members }
    }

    /// The members as they were sent, including those of a repeated key.
    ///
    /// # Errors
    /// When the bytes do not encode members.
    pub(crate) fn into_members(self) -> Result<Vec<Member>, DecodeError> {
        // `Bytes`, so that the members' own objects are not copied twice.
        Members::decode(Bytes::from(self.members)).map(|Members { members }| members)
    }
}

#[cfg(test)]
pub(crate) fn of_members(members: Vec<Member>) -> Object {
    Object::of_encoded(Members { members }.encode_to_vec())
}

impl Message for Object {
    fn encode_raw(&self, to: &mut impl BufMut) {
        to.put_slice(&self.members);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        from: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        if tag != MEMBERS {
            return encoding::skip_field(wire_type, tag, from, context);
        }
        // `Bytes` shares the memory of the received buffer, so merging copies nothing.
        let mut member = Bytes::new();
        encoding::bytes::merge(wire_type, &mut member, from, context)?;
        encoding::bytes::encode(MEMBERS, &member, &mut self.members);
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.members.len()
    }

    fn clear(&mut self) {
        self.members.clear();
    }
}
