//! Guards the direction of dependencies between the top-level modules of the crate.
//!
//! Parses the sources and fails on a cycle. Code that only exists for tests does not count, nor do
//! references within one top-level module. ARCHITECTURE.md lists the layers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// Modules, the modules that each one refers to, and the files with those references.
type ModuleGraph = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

#[test]
fn top_level_modules_do_not_depend_on_each_other_in_cycles() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let graph = read_graph(&sources);
    assert!(graph.len() > 10, "most modules were not found: {graph:?}");
    let store = graph.get("store");
    assert_eq!(store, None, "`store` must not depend on other modules");
    if let Some(cycle) = find_cycle(&graph) {
        panic!(
            "modules depend on each other:\n{}",
            describe(&cycle, &graph)
        );
    }
}

#[test]
fn cycle_finder_reports_the_modules_of_a_cycle_with_their_files() {
    let graph = |edges: &[(&str, &str)]| {
        let mut graph = ModuleGraph::new();
        for (from, to) in edges {
            let targets = graph.entry((*from).to_owned()).or_default();
            let files = targets.entry((*to).to_owned()).or_default();
            files.insert(format!("{from}.rs"));
        }
        graph
    };
    let acyclic = graph(&[("a", "b"), ("a", "c"), ("b", "c"), ("d", "b")]);
    assert_eq!(find_cycle(&acyclic), None);
    let cyclic = graph(&[("a", "b"), ("b", "c"), ("c", "d"), ("d", "b"), ("c", "e")]);
    let cycle = find_cycle(&cyclic).unwrap();
    assert_eq!(cycle, ["b", "c", "d"]);
    assert_eq!(
        describe(&cycle, &cyclic),
        "  b → c (b.rs)\n  c → d (c.rs)\n  d → b (d.rs)"
    );
}

#[test]
fn references_are_found_in_every_position_except_tests() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let modules: String = ('a'..='k').map(|name| format!("mod {name};")).collect();
    write("lib.rs", &format!("{modules} pub use c::Exported;"));
    for name in 'b'..='k' {
        write(&format!("{name}.rs"), "");
    }
    write(
        "a.rs",
        "mod inner;
         use crate::{b::B, Exported, a::inner};
         fn f(d: crate::d::D) -> u32 { crate::e::f(); vec![crate::f::F] }
         mod nested { use super::super::g::G; use super::inner; }
         #[cfg(test)] mod tests { use crate::h::H; }
         #[cfg(test)] fn only_in_tests() { crate::i::i() }",
    );
    fs::create_dir(folder.path().join("a")).unwrap();
    write("a/inner.rs", "impl super::super::j::J for super::A {}");
    let graph = read_graph(folder.path());
    let found: Vec<&str> = graph["a"].keys().map(String::as_str).collect();
    assert_eq!(found, ["b", "c", "d", "e", "f", "g", "j"]);
    assert!(graph["a"]["j"].contains("a/inner.rs"));
}

/// Returns the modules of a cycle, each of which depends on the next and the last on the first.
fn find_cycle(graph: &ModuleGraph) -> Option<Vec<String>> {
    fn visit(
        module: &str,
        graph: &ModuleGraph,
        path: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        if let Some(start) = path.iter().position(|known| known == module) {
            return Some(path[start..].to_vec());
        }
        if done.contains(module) {
            return None;
        }
        path.push(module.to_owned());
        let mut targets = graph.get(module).into_iter().flat_map(BTreeMap::keys);
        let found = targets.find_map(|target| visit(target, graph, path, done));
        path.pop();
        done.insert(module.to_owned());
        found
    }
    let mut done = BTreeSet::new();
    let mut modules = graph.keys();
    modules.find_map(|module| visit(module, graph, &mut Vec::new(), &mut done))
}

/// Lists the edges of a cycle with the files that contain them.
fn describe(cycle: &[String], graph: &ModuleGraph) -> String {
    let next = cycle.iter().cycle().skip(1);
    let edges = cycle.iter().zip(next).map(|(from, to)| {
        let files: Vec<&str> = graph[from][to].iter().map(String::as_str).collect();
        format!("  {from} → {to} ({})", files.join(", "))
    });
    edges.collect::<Vec<_>>().join("\n")
}

fn read_graph(sources: &Path) -> ModuleGraph {
    let root = parse(&sources.join("lib.rs"));
    let mut reader = GraphReader {
        sources,
        top_level: BTreeSet::new(),
        exports: BTreeMap::new(),
        module: Vec::new(),
        file: PathBuf::new(),
        graph: ModuleGraph::new(),
    };
    for item in &root.items {
        if let syn::Item::Mod(module) = item {
            reader.top_level.insert(module.ident.to_string());
        }
    }
    for item in &root.items {
        if let syn::Item::Use(import) = item {
            for path in flatten(&import.tree) {
                let (Some(module), Some(name)) = (path.first(), path.last()) else {
                    continue;
                };
                reader.exports.insert(name.clone(), module.clone());
            }
        }
    }
    for item in &root.items {
        if let syn::Item::Mod(module) = item {
            reader.visit_item_mod(module);
        }
    }
    reader.graph
}

fn parse(file: &Path) -> syn::File {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
    syn::parse_file(&text).unwrap_or_else(|error| panic!("{file:?}: {error}"))
}

/// Collects the references of one module after another.
struct GraphReader<'a> {
    sources: &'a Path,
    top_level: BTreeSet<String>,
    /// Names that the crate root exports, with the top-level module that each comes from.
    exports: BTreeMap<String, String>,
    /// Path of the current module from the crate root.
    module: Vec<String>,
    /// File of the current module, relative to the sources.
    file: PathBuf,
    graph: ModuleGraph,
}

impl GraphReader<'_> {
    /// Records a reference if its path leaves the current top-level module.
    fn record(&mut self, path: &[String]) {
        let mut base = match path.first().map(String::as_str) {
            Some("crate") => Vec::new(),
            Some("super" | "self") => self.module.clone(),
            _ => return,
        };
        for segment in path {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => drop(base.pop()),
                name => {
                    base.push(name.to_owned());
                    break;
                }
            }
        }
        let Some(target) = base.first() else { return };
        let is_module = self.top_level.contains(target);
        let target = if is_module {
            target
        } else {
            let Some(owner) = self.exports.get(target) else {
                assert_ne!(
                    target, "*",
                    "a glob import hides dependencies: {:?}",
                    self.file
                );
                return;
            };
            owner
        };
        if *target != self.module[0] && self.top_level.contains(target) {
            let targets = self.graph.entry(self.module[0].clone()).or_default();
            let files = targets.entry(target.clone()).or_default();
            files.insert(self.file.display().to_string());
        }
    }

    fn visit_file_of(&mut self, module: &[String]) {
        let file = PathBuf::from(format!("{}.rs", module.join("/")));
        let parsed = parse(&self.sources.join(&file));
        let outer = std::mem::replace(&mut self.file, file);
        self.visit_file(&parsed);
        self.file = outer;
    }
}

impl<'ast> Visit<'ast> for GraphReader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test_only(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.module.push(module.ident.to_string());
        match &module.content {
            Some((_, items)) => items.iter().for_each(|item| self.visit_item(item)),
            None => self.visit_file_of(&self.module.clone()),
        }
        self.module.pop();
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        for path in flatten(&import.tree) {
            self.record(&path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter();
        let segments: Vec<String> = segments.map(|segment| segment.ident.to_string()).collect();
        self.record(&segments);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        // The arguments of macros are no syntax tree, so paths in them are found by their text.
        let text: String = invocation.tokens.to_string();
        let text = text
            .replace(" :: ", "::")
            .replace(":: ", "::")
            .replace(" ::", "::");
        for word in text.split(|letter: char| !letter.is_alphanumeric() && !"_:".contains(letter)) {
            let segments: Vec<String> = word.split("::").map(str::to_owned).collect();
            if segments.len() > 1 {
                self.record(&segments);
            }
        }
        visit::visit_macro(self, invocation);
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether an item has the attribute `#[cfg(test)]`.
fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = attribute
            .path()
            .is_ident("cfg")
            .then(|| attribute.parse_args::<syn::Path>());
        matches!(condition, Some(Ok(path)) if path.is_ident("test"))
    })
}

/// Returns the full path of each name in a `use` tree.
fn flatten(tree: &syn::UseTree) -> Vec<Vec<String>> {
    match tree {
        syn::UseTree::Path(path) => {
            let mut paths = flatten(&path.tree);
            for rest in &mut paths {
                rest.insert(0, path.ident.to_string());
            }
            paths
        }
        syn::UseTree::Name(name) => vec![vec![name.ident.to_string()]],
        syn::UseTree::Rename(rename) => vec![vec![rename.ident.to_string()]],
        syn::UseTree::Glob(_) => vec![vec!["*".to_owned()]],
        syn::UseTree::Group(group) => group.items.iter().flat_map(flatten).collect(),
    }
}
