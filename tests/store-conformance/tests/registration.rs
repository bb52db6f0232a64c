//! Every behaviour is among the tests of a binary that links this crate.

use std::collections::BTreeSet;
use std::path::Path;

/// The linker may leave out an object file that nothing refers to, and the registrations in it.
#[test]
fn no_behaviour_is_lost_by_the_linker() {
    let mut written = BTreeSet::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for file in source.read_dir().expect("the source is there") {
        let path = file.expect("an entry").path();
        if !path.is_file() {
            continue;
        }
        let module = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .expect("a name");
        let text = std::fs::read_to_string(&path).expect("the source is text");
        for line in text.lines() {
            let call = line.strip_prefix("behaviour!(");
            if let Some((function, _)) = call.and_then(|call| call.split_once('(')) {
                written.insert(format!("{module}::{function}"));
            }
        }
    }
    let registered: BTreeSet<String> = context_store_conformance::behaviours()
        .into_iter()
        .collect();
    assert!(!written.is_empty());
    assert_eq!(registered, written);
}
