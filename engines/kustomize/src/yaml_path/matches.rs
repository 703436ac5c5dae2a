//! Finds all nodes that match a path with patterns, like kyaml's `PathMatcher`.

use golang::regexp::GoRegexp;
use goyaml::v3::{YamlNode, YamlNodeDocumentReader, YamlNodeKind};

use super::{
    ChildIndexPath, Error, MAX_PARTS, at_mut, created, created_item, index, is_pair, kind_before,
    pair, root,
};
use crate::budget::{self, BuildBudget};
use crate::field;
use crate::simple_regex_matcher;

/// Steps that a part of a path costs.
const STEPS_PER_PATH_PART: usize = 64;

/// Steps that making a regular expression costs.
const STEPS_PER_REGEX_COMPILATION: usize = 100_000;

/// A node that a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathMatch {
    /// The position of the node.
    Node(ChildIndexPath),
    /// The node is within YAML that is the text of a field. This is a copy, so changing it has no effect.
    InText(Box<YamlNode>),
}

/// The nodes at the end of a path, in order. A path without parts leads to `node` itself.
///
/// Parts are keys, numbers of items, `*` for all items, `[key=regex]` for the items with a matching value, and `[=regex]` for
/// the items that match. The expressions are not anchored, and match a value in its printed form with quotes and comments.
/// Parts after `[=regex]` are ignored. If a field on the path has a text, the path continues in the YAML within that text.
///
/// With `create`, missing nodes are created: maps, an item for `[key=regex]` if none matches, an item after the last one, and
/// at the end a node of the given kind.
///
/// # Errors
/// A part needs another kind of node, has no meaning, or counts beyond the list. Nodes that were created before the error stay.
pub fn matches(
    node: &mut YamlNode,
    path: &[impl AsRef<str>],
    create: Option<YamlNodeKind>,
    budget: &BuildBudget,
) -> Result<Vec<PathMatch>, Error> {
    if path.len() > MAX_PARTS {
        return Err(Error::TooLong);
    }
    let parts: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
    let (_, place) = root(node);
    let mut found = Vec::new();
    PathMatchFinder { root: node, create, found: &mut found, budget }.find(place, &parts)?;
    Ok(found)
}

/// One search. It recurses one level for each part, and a path has at most [`MAX_PARTS`] parts.
struct PathMatchFinder<'n, 'f> {
    root: &'n mut YamlNode,
    create: Option<YamlNodeKind>,
    found: &'f mut Vec<PathMatch>,
    budget: &'f BuildBudget,
}

impl PathMatchFinder<'_, '_> {
    fn find(&mut self, place: ChildIndexPath, parts: &[&str]) -> Result<(), Error> {
        self.budget.steps(STEPS_PER_PATH_PART + place.len())?;
        let Some((part, rest)) = parts.split_first() else {
            self.found.push(PathMatch::Node(place));
            return Ok(());
        };
        if let Some(index) = index(part) {
            return self.find_index(place, index, rest);
        }
        if is_pair(part) {
            return self.find_pair(&place, part, rest);
        }
        if *part == "*" {
            for item in 0..self.items(&place)? {
                self.find(child(&place, item), rest)?;
            }
            return Ok(());
        }
        self.find_field(place, part, rest)
    }

    fn find_field(
        &mut self,
        place: ChildIndexPath,
        part: &str,
        rest: &[&str],
    ) -> Result<(), Error> {
        let create = self.create;
        let Some(node) = at_mut(self.root, &place) else { return Ok(()) };
        let at = match (field::position(node, part)?, create) {
            (Some(at), _) => at,
            (None, None) => return Ok(()),
            (None, Some(kind)) => {
                let kind = kind_before(rest.first().copied(), kind);
                field::set(node, part, created(kind, ""))?;
                // Parity(kustomize): below null it goes on with a node that is not in the document.
                node.content.len().saturating_sub(1)
            }
        };
        let is_text = node
            .content
            .get(at)
            .is_some_and(|value| value.kind == YamlNodeKind::Scalar && !rest.is_empty());
        if is_text {
            return self.find_in_text(&child(&place, at), rest);
        }
        self.find(child(&place, at), rest)
    }

    fn find_in_text(&mut self, place: &ChildIndexPath, rest: &[&str]) -> Result<(), Error> {
        let Some(scalar) = at_mut(self.root, place) else { return Ok(()) };
        let limits = self.budget.reading(scalar.value.len())?;
        let first = YamlNodeDocumentReader::new(scalar.value.as_bytes(), &limits)?.next();
        let Some(document) = first else {
            let is_list = is_pair(rest[0]) || index(rest[0]).is_some() || rest[0] == "*";
            let expected = if is_list { "SequenceNode" } else { "MappingNode" };
            return Err(Error::EmptyText { expected });
        };
        let mut document = document?;
        // Each match is a copy of a part of the document.
        let _document = self.budget.hold(budget::weight(&document))?;
        let (_, start) = root(&document);
        let mut found = Vec::new();
        let create = self.create;
        let budget = self.budget;
        PathMatchFinder { root: &mut document, create, found: &mut found, budget }
            .find(start, rest)?;
        self.found.extend(found.into_iter().map(|found| match found {
            PathMatch::Node(place) => PathMatch::InText(Box::new(
                super::at(&document, &place).cloned().unwrap_or_default(),
            )),
            in_text @ PathMatch::InText(_) => in_text,
        }));
        Ok(())
    }

    fn find_index(
        &mut self,
        place: ChildIndexPath,
        index: usize,
        rest: &[&str],
    ) -> Result<(), Error> {
        let mut items = self.items(&place)?;
        if let (Some(kind), Some(list)) = (self.create, at_mut(self.root, &place))
            && items == index
        {
            list.content.push(created(kind_before(rest.first().copied(), kind), ""));
            items += 1;
        }
        if index >= items {
            return Err(Error::Index { index, found: items });
        }
        self.find(child(&place, index), rest)
    }

    fn find_pair(
        &mut self,
        place: &ChildIndexPath,
        part: &str,
        rest: &[&str],
    ) -> Result<(), Error> {
        let (name, pattern) = pair(part)?;
        if self.find_matching(place, name, pattern, rest)? || self.create.is_none() {
            return Ok(());
        }
        if let Some(list) = at_mut(self.root, place) {
            list.content.push(created_item(name, pattern));
        }
        if self.find_matching(place, name, pattern, rest)? {
            return Ok(());
        }
        // Differs(kustomize): it goes on creating items until its stack is full.
        Err(Error::Unmatched(part.to_owned()))
    }

    /// Continues the search from the matching items. Returns whether anything was found.
    fn find_matching(
        &mut self,
        place: &ChildIndexPath,
        name: &str,
        pattern: &str,
        rest: &[&str],
    ) -> Result<bool, Error> {
        let before = self.found.len();
        let items = self.items(place)?;
        if items == 0 {
            return Ok(false);
        }
        self.budget.steps(STEPS_PER_REGEX_COMPILATION)?;
        let pattern = GoRegexp::new(pattern)?;
        for item in 0..items {
            self.budget.steps(STEPS_PER_PATH_PART)?;
            let place = child(place, item);
            let Some(node) = super::at(self.root, &place) else { continue };
            if name.is_empty() {
                if self.is_match(&pattern, node)? {
                    self.found.push(PathMatch::Node(place));
                }
                continue;
            }
            let at = field::position(node, name).ok().flatten();
            let Some(value) = at.and_then(|at| node.content.get(at)) else { continue };
            if self.is_match(&pattern, value)? {
                self.find(place, rest)?;
            }
        }
        Ok(self.found.len() > before)
    }

    fn is_match(&self, pattern: &GoRegexp, node: &YamlNode) -> Result<bool, Error> {
        let text = field::text(node);
        self.budget.steps(simple_regex_matcher::steps(pattern, text.len()))?;
        Ok(pattern.is_match(text.trim()))
    }

    /// The number of items in the list at a position. A null has none.
    fn items(&self, place: &ChildIndexPath) -> Result<usize, Error> {
        let Some(node) = super::at(self.root, place) else { return Ok(0) };
        field::expect(node, YamlNodeKind::Sequence)?;
        Ok(node.content.len())
    }
}

fn child(place: &ChildIndexPath, child: usize) -> ChildIndexPath {
    let mut place = place.clone();
    place.push(child);
    place
}
