//! The children of a node, in a list that handles any depth without recursion.
//! What the children mean is the business of their node.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::Node;

/// The children of a node: a vector in all but what would recurse.
#[derive(Default)]
pub struct Content(Vec<Node>);

impl From<Vec<Node>> for Content {
    fn from(nodes: Vec<Node>) -> Self {
        Self(nodes)
    }
}

impl Deref for Content {
    type Target = Vec<Node>;

    fn deref(&self) -> &Vec<Node> {
        &self.0
    }
}

impl DerefMut for Content {
    fn deref_mut(&mut self) -> &mut Vec<Node> {
        &mut self.0
    }
}

impl<'n> IntoIterator for &'n Content {
    type Item = &'n Node;
    type IntoIter = std::slice::Iter<'n, Node>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'n> IntoIterator for &'n mut Content {
    type Item = &'n mut Node;
    type IntoIter = std::slice::IterMut<'n, Node>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.0);
        while let Some(mut node) = left.pop() {
            left.append(&mut node.content);
        }
    }
}

/// A copy of a node without its children.
fn alone(node: &Node) -> Node {
    Node {
        kind: node.kind,
        style: node.style,
        tag: node.tag.clone(),
        value: node.value.clone(),
        content: Content::default(),
        notes: node.notes.clone(),
        line: node.line,
        column: node.column,
    }
}

impl Clone for Content {
    fn clone(&self) -> Self {
        // Each level is what has been copied of a list, with what is left of it.
        let mut levels = vec![(Vec::with_capacity(self.len()), self.0.iter())];
        let mut done: Vec<Node> = Vec::new();
        while let Some((copied, left)) = levels.last_mut() {
            if let Some(node) = left.next() {
                copied.push(alone(node));
                if !node.content.is_empty() {
                    levels.push((Vec::with_capacity(node.content.len()), node.content.iter()));
                }
                continue;
            }
            done = std::mem::take(copied);
            levels.pop();
            if let Some((copied, _)) = levels.last_mut()
                && let Some(parent) = copied.last_mut()
            {
                parent.content = Self(std::mem::take(&mut done));
            }
        }
        Self(done)
    }
}

impl PartialEq for Content {
    fn eq(&self, other: &Self) -> bool {
        let mut pairs = vec![(self, other)];
        while let Some((left, right)) = pairs.pop() {
            if left.len() != right.len() {
                return false;
            }
            for (left, right) in left.iter().zip(right) {
                if !is_same_alone(left, right) {
                    return false;
                }
                pairs.push((&left.content, &right.content));
            }
        }
        true
    }
}

impl Eq for Content {}

/// Whether two nodes are equal but for their children.
fn is_same_alone(left: &Node, right: &Node) -> bool {
    let strings = |node: &'_ Node| (node.kind, node.style, node.line, node.column);
    strings(left) == strings(right)
        && left.tag == right.tag
        && left.value == right.value
        && left.notes == right.notes
}

impl fmt::Debug for Content {
    /// Only how many there are: printing all of them would recurse.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes", self.len())
    }
}
