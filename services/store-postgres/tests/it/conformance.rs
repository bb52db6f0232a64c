//! The behaviours every database shows.

use super::arrange::open;

context_store::conformance_tests!(open);
context_store::artifact_conformance_tests!(open);
context_store::key_conformance_tests!(open);
