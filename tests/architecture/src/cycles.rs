//! Import cycles.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::{Graph, Import};

/// The two nodes that an import connects, and the import.
type Edge<'i> = ((String, String), &'i Import);

/// Modules that import each other, directly or indirectly, and the imports between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    /// The modules. With [`folder_cycles`], each module stands for itself and all modules below it.
    pub modules: Vec<String>,
    /// The imports that form the cycle.
    pub imports: Vec<Import>,
}

impl std::fmt::Display for Cycle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.modules.join(" ↔ "))?;
        for Import { from, to, path } in &self.imports {
            write!(f, "\n    {from} imports {to} by `{path}`")?;
        }
        Ok(())
    }
}

/// The import cycles between single modules.
#[must_use]
pub fn cycles(graph: &Graph) -> Vec<Cycle> {
    let imports = graph.imports();
    let edges = imports.iter().map(|import| {
        let ends = (import.from.clone(), import.to.clone());
        (ends, import)
    });
    cycles_of(&edges.collect::<Vec<_>>())
}

/// The import cycles between sibling modules, where each module includes all modules below it. A crate without such
/// cycles can be read one folder at a time.
#[must_use]
pub fn folder_cycles(graph: &Graph) -> Vec<Cycle> {
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
        .flat_map(|edges| cycles_of(edges))
        .collect()
}

/// The strongly connected groups of nodes: within a group, every node reaches all others.
fn cycles_of(edges: &[Edge<'_>]) -> Vec<Cycle> {
    let mut next: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for ((from, to), _) in edges {
        next.entry(from).or_default().insert(to);
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = next
        .keys()
        .map(|from| (*from, reachable(from, &next)))
        .collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
    let mut cycles = Vec::new();
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
        cycles.push(Cycle {
            modules: group.iter().map(ToString::to_string).collect(),
            imports: imports.map(|(_, import)| (*import).clone()).collect(),
        });
        seen.extend(group);
    }
    cycles
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
