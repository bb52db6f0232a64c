//! Which index answers which operator.
