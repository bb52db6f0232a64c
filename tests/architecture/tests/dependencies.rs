//! Every crate uses its dependencies.

use std::path::Path;

use context_architecture::{unused_dependencies, workspace_members};

/// Dependencies that our source does not name, each with its reason.
const UNNAMED: &[(&str, &str)] = &[
    // Selects the version without Unicode tables for reqwest.
    ("services/http", "idna_adapter"),
    // Generated code names it.
    ("services/proto", "tonic-prost"),
];

#[test]
fn every_dependency_is_named_in_the_source() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for member in workspace_members(&workspace).expect("the workspace is read") {
        let unused = unused_dependencies(&workspace.join(&member)).expect("the crate is read");
        found.extend(
            unused
                .into_iter()
                .map(|dependency| (member.clone(), dependency)),
        );
    }
    let mut found: Vec<(&str, &str)> = found
        .iter()
        .map(|(member, dependency)| (member.as_str(), dependency.as_str()))
        .collect();
    found.sort_unstable();
    assert_eq!(found, UNNAMED);
}

#[test]
fn a_dependency_is_used_by_code_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("the file is written");
    };
    write(
        "Cargo.toml",
        "[package]\nname = \"made-up\"\n\n[dependencies]\nfirst-crate.workspace = true\n# A comment.\n\
         second = { version = \"1\" }\n\n[dev-dependencies]\nthird = \"1\"\nfourth = \"1\"\n\
         fifth = \"1\"\nsixth = \"1\"\n",
    );
    write(
        "lib.rs",
        "// third is not used\nuse first_crate::Thing;\nfn second_to_none() {}\nfn fourth() {}\n\
         fn f() { crate::fifth::f(\"fifth\"); sixth::f() }\n",
    );
    let unused = unused_dependencies(folder.path()).expect("the crate is read");
    assert_eq!(unused, ["second", "third", "fourth", "fifth"]);
}
