//! Checks of the source of crates: import cycles between modules, and unused dependencies.
//!
//! Module `a` imports module `b` when `a` names something that `b` defines. A name that comes through a re-export
//! counts as an import of the module that defines it, not of the re-exporting module. An inline module belongs to its
//! file. Code that is compiled only for tests does not count.

mod crates;
mod cycles;
mod dependencies;
mod graph;
mod source;

pub use crates::{CrateRoot, workspace_crates, workspace_members};
pub use cycles::{Cycle, cycles, folder_cycles};
pub use dependencies::unused_dependencies;
pub use graph::{Graph, Import};
