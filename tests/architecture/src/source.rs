//! The source of one module: the items it defines, its imports, and the paths in its code.

use std::collections::BTreeSet;

use syn::visit::Visit;
use syn::{Attribute, Item, ItemUse, UseTree, Visibility};

/// A path, as a list of names.
pub(crate) type Names = Vec<String>;

/// A `use` declaration of one name.
#[derive(Debug, Clone)]
pub(crate) struct Use {
    /// The name in this module. `*` for a glob.
    pub name: String,
    /// The path that it refers to.
    pub target: Names,
    /// Whether other modules can import it from here.
    pub is_public: bool,
}

/// A module without its children.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// The names of the items that it defines itself.
    pub items: BTreeSet<String>,
    /// Its `use` declarations.
    pub uses: Vec<Use>,
    /// The paths in its code, including macro calls.
    pub paths: Vec<Names>,
    /// Its child modules. `None` for a child in its own file.
    pub children: Vec<(String, Option<Self>)>,
}

impl Source {
    /// Reads a module from the items of a file or of `mod name { … }`.
    pub fn read(items: &[Item]) -> Self {
        let mut source = Self::default();
        items.iter().for_each(|item| source.visit_item(item));
        source
    }

    fn define(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            _ => return,
        };
        self.items.insert(name.to_string());
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_for_tests(attributes(item)) {
            return;
        }
        self.define(item);
        match item {
            Item::Mod(module) => {
                let items = module.content.as_ref().map(|(_, items)| Self::read(items));
                self.children.push((module.ident.to_string(), items));
            }
            Item::Use(declaration) => flatten(declaration, &mut self.uses),
            _ => syn::visit::visit_item(self, item),
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            syn::visit::visit_impl_item_fn(self, function);
        }
    }

    // The path in `pub(super)` restricts visibility and is not an import.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|part| part.ident.to_string());
        self.paths.push(names.collect());
        syn::visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.paths.extend(paths_in(&call.tokens.to_string()));
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether this is compiled only for tests (`#[cfg(test)]`).
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|path| path.is_ident("test"))
    })
}

fn flatten(declaration: &ItemUse, uses: &mut Vec<Use>) {
    let is_public = !matches!(declaration.vis, Visibility::Inherited);
    let mut rest = vec![(Names::new(), &declaration.tree)];
    while let Some((mut path, tree)) = rest.pop() {
        let name = match tree {
            UseTree::Path(part) => {
                path.push(part.ident.to_string());
                rest.push((path, &part.tree));
                continue;
            }
            UseTree::Group(group) => {
                rest.extend(group.items.iter().map(|tree| (path.clone(), tree)));
                continue;
            }
            UseTree::Glob(_) => "*".to_owned(),
            UseTree::Name(name) if name.ident == "self" => path.last().cloned().unwrap_or_default(),
            UseTree::Name(name) => {
                path.push(name.ident.to_string());
                name.ident.to_string()
            }
            UseTree::Rename(name) => {
                if name.ident != "self" {
                    path.push(name.ident.to_string());
                }
                name.rename.to_string()
            }
        };
        uses.push(Use {
            name,
            target: path,
            is_public,
        });
    }
}

/// The paths among the tokens of a macro call, which syn leaves unparsed.
fn paths_in(tokens: &str) -> Vec<Names> {
    let mut paths: Vec<Names> = Vec::new();
    let mut is_continued = false;
    let mut rest = tokens;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let end = end_of_string(rest);
            rest = &rest[end..];
            is_continued = false;
        } else if first == '\'' {
            rest = &rest[end_of_character(rest)..];
            is_continued = false;
        } else if let Some(end) = end_of_raw_string(rest) {
            rest = &rest[end..];
            is_continued = false;
        } else if first.is_alphabetic() || first == '_' {
            let end = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            let name = rest[..end].to_owned();
            match paths.last_mut().filter(|_| is_continued) {
                Some(path) => path.push(name),
                None => paths.push(vec![name]),
            }
            rest = &rest[end..];
            is_continued = false;
        } else if let Some(after) = rest.strip_prefix("::") {
            rest = after;
            is_continued = !paths.is_empty();
        } else {
            is_continued &= first.is_whitespace();
            rest = &rest[first.len_utf8()..];
        }
    }
    paths
}

/// The end of the string literal at the start of this text.
fn end_of_string(text: &str) -> usize {
    let mut is_escaped = false;
    for (index, c) in text.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return index + 1,
            _ => {}
        }
    }
    text.len()
}

/// The end of the character literal at the start of this text, or of the quote of a lifetime.
fn end_of_character(text: &str) -> usize {
    let mut chars = text.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        // The second character is escaped, so it may be a quote.
        (Some((_, '\\')), Some(_)) => chars
            .find(|(_, c)| *c == '\'')
            .map_or(text.len(), |(index, _)| index + 1),
        (Some(_), Some((index, '\''))) => index + 1,
        _ => 1,
    }
}

/// The end of the raw string literal at the start of this text, if there is one.
fn end_of_raw_string(text: &str) -> Option<usize> {
    let after = text
        .strip_prefix('r')
        .or_else(|| text.strip_prefix("br"))
        .or_else(|| text.strip_prefix("cr"))?;
    let hashes = after.chars().take_while(|c| *c == '#').count();
    let content = after[hashes..].strip_prefix('"')?;
    let closing = format!("\"{}", "#".repeat(hashes));
    let start = text.len() - content.len();
    let end = content.find(&closing);
    Some(end.map_or(text.len(), |end| start + end + closing.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_macro_calls_are_found_and_texts_are_not_read() {
        let found = paths_in(r#"a :: b (x, "c :: d \" e::f", self . g), crate::h :: i"#);
        let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
        assert_eq!(found, ["a::b", "x", "self", "g", "crate::h::i"]);
    }

    #[test]
    fn quotes_in_characters_and_raw_strings_hide_no_path() {
        let found = paths_in(r##"x ('"', '\'', r#"c "d::e" f"#, br"g \", b'"', h::i), r"j", k"##);
        let found: Vec<String> = found.iter().map(|path| path.join("::")).collect();
        assert_eq!(found, ["x", "b", "h::i", "k"]);
    }

    #[test]
    fn groups_renames_and_globs_are_single_names() {
        let file = syn::parse_file("pub use crate::a::{self, B as C, d::*}; use super::e as _;");
        let uses = Source::read(&file.unwrap().items).uses;
        let mut found: Vec<String> = uses
            .iter()
            .map(|u| format!("{} {} {}", u.name, u.target.join("::"), u.is_public))
            .collect();
        found.sort_unstable();
        assert_eq!(
            found,
            [
                "* crate::a::d true",
                "C crate::a::B true",
                "_ super::e false",
                "a crate::a true"
            ]
        );
    }
}
