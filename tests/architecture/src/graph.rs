//! The modules of a crate and their imports of each other.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use crate::source::{Names, Source};

/// An import of one module by another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// The module that imports, such as `crate::rest::contexts`.
    pub from: String,
    /// The module that is imported.
    pub to: String,
    /// The path as written in the source.
    pub path: String,
}

/// The modules of a crate and their imports.
#[derive(Debug, Default)]
pub struct Graph {
    modules: BTreeMap<String, Source>,
    /// For each inline module, the module of its file, because a file is one node.
    inline_modules: BTreeMap<String, String>,
}

impl Graph {
    /// Reads the crate with this root file.
    ///
    /// # Errors
    /// A module's file is missing or is not valid Rust.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut graph = Self::default();
        let folder = root.parent().unwrap_or(Path::new("."));
        graph.read_file("crate", root, folder)?;
        Ok(graph)
    }

    /// The names of all modules.
    pub fn modules(&self) -> impl Iterator<Item = &str> {
        self.modules.keys().map(String::as_str)
    }

    /// All imports, one for each pair of modules.
    #[must_use]
    pub fn imports(&self) -> Vec<Import> {
        let mut imports: BTreeMap<(&str, &str), String> = BTreeMap::new();
        for (from, source) in &self.modules {
            let mut add = |path: &Names| {
                let to = self.definer(from, path, &mut BTreeSet::new());
                let (from, to) = (self.file_of(from), to.map(|to| self.file_of(to)));
                if let Some(to) = to.filter(|to| *to != from) {
                    imports.entry((from, to)).or_insert_with(|| path.join("::"));
                }
            };
            // A single name may be a variable with the same name as a child module.
            let is_child = |name: &str| self.modules.contains_key(&format!("{from}::{name}"));
            for path in &source.paths {
                if path.len() > 1 || !path.first().is_some_and(|name| is_child(name)) {
                    add(path);
                }
            }
            for declaration in source.uses.iter().filter(|declared| !declared.is_public) {
                add(&declaration.target);
            }
        }
        imports
            .into_iter()
            .map(|((from, to), path)| Import {
                from: from.to_owned(),
                to: to.to_owned(),
                path,
            })
            .collect()
    }

    /// The module of the file that contains this module.
    fn file_of<'g>(&'g self, module: &'g str) -> &'g str {
        self.inline_modules
            .get(module)
            .map_or(module, String::as_str)
    }

    /// Reads a module from its file. `folder` contains its children.
    fn read_file(&mut self, name: &str, file: &Path, folder: &Path) -> io::Result<()> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| io::Error::other(format!("{}: {error}", file.display())))?;
        let parsed = syn::parse_file(&text)
            .map_err(|error| io::Error::other(format!("{}: {error}", file.display())))?;
        self.add(name, Source::read(&parsed.items), folder)
    }

    fn add(&mut self, name: &str, mut source: Source, folder: &Path) -> io::Result<()> {
        for (child, inline) in &mut source.children {
            let (path, within) = (format!("{name}::{child}"), folder.join(&*child));
            match inline.take() {
                Some(inline) => {
                    let file = self.file_of(name).to_owned();
                    self.inline_modules.insert(path.clone(), file);
                    self.add(&path, inline, &within)?;
                }
                None => {
                    let beside = within.with_extension("rs");
                    let file = if beside.exists() {
                        beside
                    } else {
                        within.join("mod.rs")
                    };
                    self.read_file(&path, &file, &within)?;
                }
            }
        }
        self.modules.insert(name.to_owned(), source);
        Ok(())
    }

    /// The module that defines the item named by a path in this module. `None` for an item of another crate.
    fn definer<'g>(
        &'g self,
        module: &'g str,
        path: &[String],
        seen: &mut BTreeSet<(String, String)>,
    ) -> Option<&'g str> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => "crate",
            "self" => module,
            "super" => parent(module)?,
            _ => return self.member(module, path, seen),
        };
        while let Some((first, after)) = rest.split_first()
            && first == "super"
        {
            (at, rest) = (parent(at)?, after);
        }
        if rest.is_empty() {
            return self
                .modules
                .get_key_value(at)
                .map(|(name, _)| name.as_str());
        }
        self.member(at, rest, seen).or(Some(at))
    }

    /// The module that defines the item named by this path. The path begins with a name in `module`.
    fn member<'g>(
        &'g self,
        module: &'g str,
        path: &[String],
        seen: &mut BTreeSet<(String, String)>,
    ) -> Option<&'g str> {
        let (first, rest) = path.split_first()?;
        if !seen.insert((module.to_owned(), first.clone())) {
            return None;
        }
        let (name, source) = self.modules.get_key_value(module)?;
        let child = format!("{module}::{first}");
        if let Some((child, _)) = self.modules.get_key_value(&child) {
            // A name that was not found in the child may be defined by a macro in it.
            return if rest.is_empty() {
                Some(child)
            } else {
                self.member(child, rest, seen).or(Some(child))
            };
        }
        if source.items.contains(first) {
            return Some(name);
        }
        let named = source.uses.iter().find(|declared| declared.name == *first);
        if let Some(declared) = named {
            let target: Names = declared.target.iter().chain(rest).cloned().collect();
            return self.definer(module, &target, seen);
        }
        for declared in source.uses.iter().filter(|declared| declared.name == "*") {
            let target: Names = declared.target.iter().chain(path).cloned().collect();
            let found = self.definer(module, &target, seen);
            if found.is_some_and(|found| self.modules[found].items.contains(first)) {
                return found;
            }
        }
        None
    }
}

fn parent(module: &str) -> Option<&str> {
    module.rsplit_once("::").map(|(parent, _)| parent)
}
