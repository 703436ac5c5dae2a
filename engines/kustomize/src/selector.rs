//! Selectors for the target of a patch or replacement: regular expressions for names, and label selectors of Kubernetes.
//!
//! Here: the selector, and matching the parts of an object. Elsewhere: label selectors (`selector/labels.rs`), and which
//! present or earlier names of an object are matched.

mod label_syntax_validation;
pub mod labels;

use golang::regexp::GoRegexp;

use crate::simple_regex_matcher::{self, PlainRegularExpression};
use labels::{LabelSelector, LabelSelectorSyntaxError};

/// The selector for the target of a patch or of a replacement. An empty field matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceSelector {
    /// Regular expression for all of the API group.
    pub group: String,
    /// An expression for the whole API version, without the group.
    pub version: String,
    /// An expression for the whole kind.
    pub kind: String,
    /// An expression for the whole name.
    pub name: String,
    /// An expression for the whole namespace.
    pub namespace: String,
    /// A label selector.
    pub label_selector: String,
    /// A label selector for annotations. Only annotation values that are valid as label values can be selected.
    pub annotation_selector: String,
}

/// A selector that is ready to be used.
#[derive(Debug, Clone)]
pub struct ResourceMatcher {
    group: SelectorPattern,
    version: SelectorPattern,
    kind: SelectorPattern,
    name: SelectorPattern,
    namespace: SelectorPattern,
    labels: Result<LabelSelector, LabelSelectorSyntaxError>,
    annotations: Result<LabelSelector, LabelSelectorSyntaxError>,
    /// The total length of both label selectors.
    marks: usize,
}

/// Steps that making a regular expression costs.
const STEPS_PER_REGEX_COMPILATION: usize = 100_000;

impl ResourceSelector {
    /// The number of steps that [`Self::compile`] takes from the budget.
    pub(crate) fn steps(&self) -> usize {
        let patterns = [&self.group, &self.version, &self.kind, &self.name, &self.namespace];
        let steps = |pattern: &String| {
            if PlainRegularExpression::parse(pattern).is_some() {
                pattern.len()
            } else {
                STEPS_PER_REGEX_COMPILATION
            }
        };
        let marks = self.label_selector.len() + self.annotation_selector.len();
        patterns.into_iter().map(steps).sum::<usize>() + 16 * marks
    }

    /// Compiles the expressions. An invalid label selector is reported only when it is used. kustomize does the same, and never
    /// reports it if the other fields match nothing.
    ///
    /// # Errors
    /// A regular expression is not valid.
    pub fn compile(&self) -> Result<ResourceMatcher, golang::regexp::Error> {
        Ok(ResourceMatcher {
            group: anchored(&self.group)?,
            version: anchored(&self.version)?,
            kind: anchored(&self.kind)?,
            name: anchored(&self.name)?,
            namespace: anchored(&self.namespace)?,
            labels: LabelSelector::parse(&self.label_selector),
            annotations: LabelSelector::parse(&self.annotation_selector),
            marks: self.label_selector.len() + self.annotation_selector.len(),
        })
    }
}

impl ResourceMatcher {
    /// Whether labels or annotations count.
    pub(crate) fn has_marks(&self) -> bool {
        self.marks > 0
    }

    /// The steps for matching one object whose id has this many bytes.
    pub(crate) fn steps(&self, id: usize) -> usize {
        let patterns = [&self.group, &self.version, &self.kind, &self.name, &self.namespace];
        patterns.into_iter().map(|pattern| pattern.steps(id)).sum::<usize>() + self.marks
    }

    /// Whether the kind of an object matches.
    pub(crate) fn matches_kind(&self, group: &str, version: &str, kind: &str) -> bool {
        self.group.allows(group) && self.version.allows(version) && self.kind.allows(kind)
    }

    /// Whether the name of an object matches this selector.
    pub(crate) fn matches_name(&self, name: &str) -> bool {
        self.name.allows(name)
    }

    /// Whether the namespace of an object matches this selector.
    pub(crate) fn matches_namespace(&self, namespace: &str) -> bool {
        self.namespace.allows(namespace)
    }

    /// Whether an object matches by its labels. `label` returns the value of a key, or `None` if the label is missing.
    ///
    /// # Errors
    /// The label selector is not valid.
    pub(crate) fn matches_labels<'v>(
        &self,
        label: impl Fn(&str) -> Option<&'v str>,
    ) -> Result<bool, LabelSelectorSyntaxError> {
        self.labels.as_ref().map(|selector| selector.matches(label)).map_err(Clone::clone)
    }

    /// Like [`Self::matches_labels`], for annotations. `annotation` returns the value of a key, or `None` if it is
    /// missing.
    ///
    /// # Errors
    /// The annotation selector is not valid.
    pub(crate) fn matches_annotations<'v>(
        &self,
        annotation: impl Fn(&str) -> Option<&'v str>,
    ) -> Result<bool, LabelSelectorSyntaxError> {
        self.annotations.as_ref().map(|selector| selector.matches(annotation)).map_err(Clone::clone)
    }
}

/// An expression for all of a text.
#[derive(Debug, Clone)]
enum SelectorPattern {
    /// The expression is empty and matches any text.
    Any,
    Plain(PlainRegularExpression),
    Expression(GoRegexp),
}

impl SelectorPattern {
    fn steps(&self, length: usize) -> usize {
        match self {
            Self::Any => 1,
            Self::Plain(pattern) => pattern.steps(length),
            Self::Expression(pattern) => simple_regex_matcher::steps(pattern, length),
        }
    }

    fn allows(&self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Plain(pattern) => pattern.is_match(text),
            Self::Expression(pattern) => pattern.is_match(text),
        }
    }
}

fn anchored(pattern: &str) -> Result<SelectorPattern, golang::regexp::Error> {
    if pattern.is_empty() {
        return Ok(SelectorPattern::Any);
    }
    if let Some(pattern) = PlainRegularExpression::parse(pattern) {
        return Ok(SelectorPattern::Plain(pattern));
    }
    GoRegexp::new(&format!("^(?:{pattern})$")).map(SelectorPattern::Expression)
}

#[cfg(test)]
mod tests;
