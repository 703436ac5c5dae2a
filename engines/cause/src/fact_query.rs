//! Facts: the queries of the walk, and their answers.

use std::collections::{BTreeMap, BTreeSet};

use objects::{Object, ObjectId};

/// A query for facts that an explanation needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FactQuery {
    /// The object as it is now, in any API version. For a Secret, only its existence is needed.
    Object(ObjectId),
    /// The Pods of a namespace that a label selector matches.
    Pods {
        /// The namespace of the Pods.
        namespace: String,
        /// The label selector, in the form that the API server takes.
        selector: String,
    },
    /// The Events of type `Warning` of a namespace.
    Warnings(String),
    /// The open Incidents of a namespace about objects of one kind.
    Incidents {
        /// The namespace of the Incidents.
        namespace: String,
        /// The kind of the objects that the Incidents are about.
        kind: String,
    },
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

/// The answer to a query.
#[derive(Debug, Clone, PartialEq)]
pub enum FactAnswer {
    /// The objects. The list is empty if none exist.
    Objects(Vec<Object>),
    /// Lines of a log.
    Lines(Vec<String>),
    /// The query could not be answered, with the reason.
    Refused(String),
}

/// The answers to queries so far.
#[derive(Debug, Clone, Default)]
pub struct FactAnswers {
    answers: BTreeMap<FactQuery, FactAnswer>,
    /// Objects that are healthy, as a list has shown.
    well: BTreeSet<ObjectId>,
}

impl FactAnswers {
    /// Remembers the answer to a query, so that the walk can use it.
    pub fn insert(&mut self, query: FactQuery, answer: FactAnswer) {
        self.answers.insert(query, answer);
    }

    /// Forgets an answer, so that the walk asks the query anew.
    pub fn forget(&mut self, query: &FactQuery) {
        self.answers.remove(query);
    }

    /// Remembers that an object is healthy, as the caller has found out. A walk over applied objects then does not
    /// query it.
    pub fn insert_well(&mut self, id: ObjectId) {
        self.well.insert(id);
    }

    /// An object that is known to exist, from a query for it or from a list of Pods. `None` if it does not exist, or if
    /// that is not known.
    pub fn object(&self, id: &ObjectId) -> Option<&Object> {
        match self.answers.get(&FactQuery::Object(id.clone())) {
            Some(FactAnswer::Objects(found)) => found.first(),
            Some(FactAnswer::Lines(_) | FactAnswer::Refused(_)) => None,
            None => self.listed_pod(id),
        }
    }

    fn listed_pod(&self, id: &ObjectId) -> Option<&Object> {
        self.answers.iter().find_map(|answered| match answered {
            (FactQuery::Pods { namespace, .. }, FactAnswer::Objects(pods))
                if *namespace == id.namespace =>
            {
                pods.iter().find(|pod| pod.id() == *id)
            }
            _ => None,
        })
    }

    /// The answer to a query; `None` if it was not answered yet.
    pub fn get(&self, query: &FactQuery) -> Option<&FactAnswer> {
        self.answers.get(query)
    }

    pub(crate) fn is_well(&self, id: &ObjectId) -> bool {
        self.well.contains(id)
    }
}
