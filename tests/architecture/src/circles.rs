//! Circles of imports.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{Graph, Import};

/// The two nodes of an import, and the import.
type Edge<'i> = ((String, String), &'i Import);

/// Modules that import each other in a circle, and the imports between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Circle {
    /// The modules; with [`folder_circles`] a module stands for all below it too.
    pub modules: Vec<String>,
    /// The imports that make the circle.
    pub imports: Vec<Import>,
}

impl std::fmt::Display for Circle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.modules.join(" ↔ "))?;
        for Import { from, to, path } in &self.imports {
            write!(f, "\n    {from} imports {to} by `{path}`")?;
        }
        Ok(())
    }
}

/// The circles of imports between single modules.
#[must_use]
pub fn circles(graph: &Graph) -> Vec<Circle> {
    let imports = graph.imports();
    let edges = imports.iter().map(|import| {
        let ends = (import.from.clone(), import.to.clone());
        (ends, import)
    });
    circles_of(&edges.collect::<Vec<_>>())
}

/// The circles of imports between modules that stand side by side, each taken with everything below
/// it. A crate without any can be read room by room.
#[must_use]
pub fn folder_circles(graph: &Graph) -> Vec<Circle> {
    let imports = graph.imports();
    let mut folders: BTreeMap<String, Vec<Edge<'_>>> = BTreeMap::new();
    for import in &imports {
        let from: Vec<&str> = import.from.split("::").collect();
        let to: Vec<&str> = import.to.split("::").collect();
        let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        let end = |names: &[&str]| names[..names.len().min(shared + 1)].join("::");
        folders
            .entry(from[..shared].join("::"))
            .or_default()
            .push(((end(&from), end(&to)), import));
    }
    folders
        .values()
        .flat_map(|edges| circles_of(edges))
        .collect()
}

/// The groups of nodes each of which reaches all others of its group.
fn circles_of(edges: &[Edge<'_>]) -> Vec<Circle> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for ((from, to), _) in edges {
        next.entry(from).or_default().insert(to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = next
        .keys()
        .map(|from| (*from, reachable(from, &next)))
        .collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
    let mut circles = Vec::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for node in next.keys().copied() {
        if !reaches(node, node) || seen.contains(node) {
            continue;
        }
        let group: BTreeSet<&str> = reached[node]
            .iter()
            .copied()
            .filter(|other| reaches(other, node))
            .collect();
        let imports = edges
            .iter()
            .filter(|((from, to), _)| group.contains(from.as_str()) && group.contains(to.as_str()));
        circles.push(Circle {
            modules: group.iter().map(ToString::to_string).collect(),
            imports: imports.map(|(_, import)| (*import).clone()).collect(),
        });
        seen.extend(group);
    }
    circles
}

fn reachable<'g>(from: &str, next: &BTreeMap<&'g str, BTreeSet<&'g str>>) -> BTreeSet<&'g str> {
    let mut found = BTreeSet::new();
    let mut rest: Vec<&str> = next.get(from).into_iter().flatten().copied().collect();
    while let Some(node) = rest.pop() {
        if found.insert(node) {
            rest.extend(next.get(node).into_iter().flatten().copied());
        }
    }
    found
}
