//! The children of a node, in a list that never recurses, whatever the depth.

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::YamlNode;

/// The children of a node. It is a vector whose clone, comparison and drop do not recurse.
#[derive(Default)]
pub struct YamlNodeChildren(Vec<YamlNode>);

impl From<Vec<YamlNode>> for YamlNodeChildren {
    fn from(nodes: Vec<YamlNode>) -> Self {
        Self(nodes)
    }
}

impl Deref for YamlNodeChildren {
    type Target = Vec<YamlNode>;

    fn deref(&self) -> &Vec<YamlNode> {
        &self.0
    }
}

impl DerefMut for YamlNodeChildren {
    fn deref_mut(&mut self) -> &mut Vec<YamlNode> {
        &mut self.0
    }
}

impl<'n> IntoIterator for &'n YamlNodeChildren {
    type Item = &'n YamlNode;
    type IntoIter = std::slice::Iter<'n, YamlNode>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'n> IntoIterator for &'n mut YamlNodeChildren {
    type Item = &'n mut YamlNode;
    type IntoIter = std::slice::IterMut<'n, YamlNode>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}

impl Drop for YamlNodeChildren {
    fn drop(&mut self) {
        let mut left = std::mem::take(&mut self.0);
        while let Some(mut node) = left.pop() {
            left.append(&mut node.content);
        }
    }
}

/// A copy of a node without its children.
fn alone(node: &YamlNode) -> YamlNode {
    YamlNode {
        kind: node.kind,
        style: node.style,
        tag: node.tag.clone(),
        value: node.value.clone(),
        content: YamlNodeChildren::default(),
        notes: node.notes.clone(),
        line: node.line,
        column: node.column,
    }
}

impl Clone for YamlNodeChildren {
    fn clone(&self) -> Self {
        // Each level is what has been copied of a list, with what is left of it.
        let mut levels = vec![(Vec::with_capacity(self.len()), self.0.iter())];
        let mut done: Vec<YamlNode> = Vec::new();
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

impl PartialEq for YamlNodeChildren {
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

impl Eq for YamlNodeChildren {}

/// Whether two nodes are equal but for their children.
fn is_same_alone(left: &YamlNode, right: &YamlNode) -> bool {
    let strings = |node: &'_ YamlNode| (node.kind, node.style, node.line, node.column);
    strings(left) == strings(right)
        && left.tag == right.tag
        && left.value == right.value
        && left.notes == right.notes
}

impl fmt::Debug for YamlNodeChildren {
    /// Only how many there are: printing all of them would recurse.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes", self.len())
    }
}
