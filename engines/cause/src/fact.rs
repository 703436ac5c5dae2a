//! Facts: the queries of the walk, and their results.

use std::collections::BTreeMap;

use objects::{Object, ObjectId};

/// Something that has to be known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Query {
    /// An object as it is now, in any version. Of a Secret nothing but that it is there is needed.
    Object(ObjectId),
    /// The Pods of a namespace that a label selector matches.
    Pods {
        /// Their namespace.
        namespace: String,
        /// As the API server takes it.
        selector: String,
    },
    /// The Events of type `Warning` of a namespace.
    Warnings(String),
    /// The last lines that a container printed.
    Lines {
        /// The namespace of the Pod.
        namespace: String,
        /// The Pod.
        pod: String,
        /// The container.
        container: String,
    },
}

/// What there is to a question.
#[derive(Debug, Clone, PartialEq)]
pub enum FactAnswer {
    /// The objects; none if there is none.
    Objects(Vec<Object>),
    /// Lines of a log.
    Lines(Vec<String>),
    /// It could not be found out, and why.
    Refused(String),
}

/// What is known so far.
#[derive(Debug, Clone, Default)]
pub struct QueryAnswers(BTreeMap<Query, FactAnswer>);

impl QueryAnswers {
    /// Remembers an answer.
    pub fn insert(&mut self, query: Query, answer: FactAnswer) {
        self.0.insert(query, answer);
    }

    /// Forgets an answer, so that the question is asked again.
    pub fn forget(&mut self, query: &Query) {
        self.0.remove(query);
    }

    pub(crate) fn get(&self, query: &Query) -> Option<&FactAnswer> {
        self.0.get(query)
    }
}
