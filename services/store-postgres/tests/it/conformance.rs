//! The behaviours every database shows.

use super::arrange::open;

context_store::conformance_tests!(open);
