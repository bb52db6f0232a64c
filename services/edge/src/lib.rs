//! What the HTTP servers of the service and the gateway share.

pub mod host;
pub mod unread;
