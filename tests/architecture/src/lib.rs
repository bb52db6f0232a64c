//! The modules of a crate as a graph, read from its source, and the circles in that graph; the dependencies that a crate
//! does not use.
//!
//! Module `a` imports module `b` when `a` names something that `b` defines. A name that comes
//! through a re-export counts as an import of the module that defines it: a facade is no import.
//! A module in braces belongs to its file. What is compiled for tests alone does not count.

mod circles;
mod crates;
mod dependencies;
mod graph;
mod source;

pub use circles::{Circle, circles, folder_circles};
pub use crates::{CrateRoot, workspace_crates, workspace_members};
pub use dependencies::unused_dependencies;
pub use graph::{Graph, Import};
