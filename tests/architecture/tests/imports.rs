//! No modules of a crate import each other in a cycle.

use std::path::{Path, PathBuf};

use context_architecture::{
    Cycle, Graph, cycles, folder_cycles, workspace_crates, workspace_members,
};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Crates with import cycles between folders, but not between single modules.
const FLAT: &[&str] = &["services/store-sqlite", "services/store-postgres"];

#[test]
fn no_modules_of_a_crate_import_each_other_in_a_circle() {
    let mut found = Vec::new();
    for root in workspace_crates(&workspace()).expect("the workspace is read") {
        let graph = Graph::read(&root.file).expect("the crate is read");
        let cycles = cycles(&graph);
        found.extend(cycles.iter().map(|cycle| format!("{}: {cycle}", root.name)));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn folders_import_each_other_in_one_direction() {
    let mut found = Vec::new();
    for root in workspace_crates(&workspace()).expect("the workspace is read") {
        let graph = Graph::read(&root.file).expect("the crate is read");
        let cycles = folder_cycles(&graph);
        if FLAT.contains(&root.name.as_str()) {
            assert!(
                !cycles.is_empty(),
                "{} has no such cycles; remove it from the list",
                root.name
            );
            continue;
        }
        let lines = cycles.iter().map(|cycle| format!("{}: {cycle}", root.name));
        found.extend(lines);
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_crate_is_read_whole() {
    let crates = workspace_crates(&workspace()).expect("the workspace is read");
    for crate_name in [
        "services/engine",
        "services/server",
        "gateway",
        "bench (binary)",
    ] {
        assert!(
            crates.iter().any(|root| root.name == crate_name),
            "{crate_name}"
        );
    }
    for member in workspace_members(&workspace()).expect("the workspace is read") {
        let is_of_member = |name: &str| name.trim_end_matches(" (binary)") == member;
        assert!(
            crates.iter().any(|root| is_of_member(&root.name)),
            "{member} has no crate that is read"
        );
    }
    for name in FLAT {
        assert!(crates.iter().any(|root| root.name == *name), "{name}");
    }
    let engine = crates.iter().find(|root| root.name == "services/engine");
    let graph = Graph::read(&engine.expect("found").file).expect("the crate is read");
    let modules: Vec<&str> = graph.modules().collect();
    assert!(
        modules.contains(&"crate::retrieval::embedding::texts"),
        "{modules:?}"
    );
    let imports = graph.imports();
    let imported = |from: &str, to: &str| {
        imports
            .iter()
            .any(|import| import.from == from && import.to == to)
    };
    assert!(
        imported("crate::contexts::delete", "crate::access::caller"),
        "a re-export leads to the module that defines the name"
    );
    assert!(!imported(
        "crate::access::caller",
        "crate::contexts::delete"
    ));
}

/// The graph of a crate with these files.
fn made_up(files: &[(&str, &str)]) -> Graph {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let file = folder.path().join(name);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("the folder is made");
        std::fs::write(file, text).expect("the file is written");
    }
    Graph::read(&folder.path().join("lib.rs")).expect("the crate is read")
}

fn modules(cycles: &[Cycle]) -> Vec<&[String]> {
    cycles.iter().map(|cycle| &cycle.modules[..]).collect()
}

#[test]
fn a_circle_of_three_modules_is_found_through_every_kind_of_path() {
    let graph = made_up(&[
        ("lib.rs", "mod a; mod b; mod c; mod d; pub use c::C;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        // Through a re-export, in a type.
        ("b.rs", "pub struct B(Box<crate::C>);"),
        // In a macro, with a relative path.
        (
            "c.rs",
            "pub struct C; fn show() { println!(\"{}\", super::a::A::NAME) }",
        ),
        ("d.rs", "use crate::a::A; pub struct D(A);"),
    ]);
    let found = cycles(&graph);
    assert_eq!(modules(&found), [["crate::a", "crate::b", "crate::c"]]);
    let shown = found[0].to_string();
    assert!(
        shown.contains("crate::b imports crate::c by `crate::C`"),
        "{shown}"
    );
}

#[test]
fn a_module_and_its_parent_make_a_circle() {
    let graph = made_up(&[
        ("lib.rs", "mod outer;"),
        ("outer/mod.rs", "mod inner; pub struct Outer(inner::Inner);"),
        ("outer/inner.rs", "use super::Outer; pub struct Inner;"),
    ]);
    assert_eq!(
        modules(&cycles(&graph)),
        [["crate::outer", "crate::outer::inner"]]
    );
}

#[test]
fn facades_tests_and_other_crates_make_no_circle() {
    let graph = made_up(&[
        ("lib.rs", "mod a; mod b; pub use a::A; pub use b::*;"),
        (
            "a.rs",
            "use std::fmt; pub struct A; #[cfg(test)] mod tests { use crate::b::B; use super::*; }",
        ),
        (
            "b.rs",
            "use crate::A; pub struct B(A); impl B { #[cfg(test)] fn new() { crate::b::x() } }",
        ),
    ]);
    assert_eq!(cycles(&graph), []);
    assert_eq!(graph.imports().len(), 1, "{:?}", graph.imports());
}

#[test]
fn folders_in_a_circle_are_found_when_their_modules_are_not_in_one() {
    let graph = made_up(&[
        ("lib.rs", "mod a; mod b;"),
        ("a/mod.rs", "pub mod one; pub mod two;"),
        ("a/one.rs", "use crate::b::three::Three;"),
        ("a/two.rs", "pub struct Two;"),
        ("b/mod.rs", "pub mod three; pub mod four;"),
        ("b/three.rs", "pub struct Three;"),
        ("b/four.rs", "use crate::a::two::Two;"),
    ]);
    assert_eq!(cycles(&graph), []);
    assert_eq!(modules(&folder_cycles(&graph)), [["crate::a", "crate::b"]]);
}
