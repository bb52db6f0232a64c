//! The rules that both databases share, each defined once. A store loads rows, calls these functions and writes their
//! results. The functions themselves neither read nor write.

pub mod artifact;
pub mod counts;
pub mod entry;
pub mod ids;
pub mod key;
pub mod path;
pub mod retransmit;
pub mod text_range;
pub mod thread;
