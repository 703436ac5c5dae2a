//! Decides whether a source has to be fetched: the same for every kind of source.
//!
//! Here: the decision. Elsewhere: asking the remote and fetching (one module a protocol), the store.

use std::collections::BTreeMap;

use reconcile::{Kind, Reason, Rest, Verdict};
use serde_json::Value;

/// Marks the decision of a source's run.
pub struct Fetching;

/// What shapes an artifact besides the revision of its source, by the field of the spec. A change of any of it makes a
/// new artifact.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape(BTreeMap<&'static str, Value>);

impl Shape {
    /// With the value of one more field. A field that is absent, false, an empty text or an empty list says nothing.
    #[must_use]
    pub fn with(mut self, field: &'static str, value: impl Into<Value>) -> Self {
        let value = value.into();
        if !says_nothing(&value) {
            self.0.insert(field, value);
        }
        self
    }

    /// The value of a field that says something.
    #[must_use]
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }
}

/// True for what a spec or a status leaves out: null, false, an empty text, an empty list.
pub fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Bool(true) | Value::Number(_) | Value::Object(_) => false,
    }
}

/// What the artifact of a source should be like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// What the archive is made with.
    pub shape: Shape,
}

/// What the remote has, and what is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Revision that the remote has now.
    pub remote: String,
    /// The artifact that is kept, if its bytes are there and are what its digest says.
    pub kept: Option<Kept>,
    /// What is said when both agree: the reason and the message of `Ready`.
    pub settled: (Reason, String),
}

/// An artifact whose bytes can be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Revision that it was made from.
    pub revision: String,
    /// What it was made with.
    pub shape: Shape,
}

/// What a run may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Fetch the remote as it is now, pack it and keep it.
    Fetch {
        /// The revision that made it necessary.
        revision: String,
    },
}

impl Kind for Fetching {
    type Desired = Desired;
    type Observed = Observed;
    type Step = Step;

    fn plan(desired: &Desired, observed: &Observed) -> Verdict<Step> {
        match &observed.kept {
            Some(kept) if kept.revision == observed.remote && kept.shape == desired.shape => {
                let (reason, text) = observed.settled.clone();
                Verdict::Rest(Rest::Settled(reason, text))
            }
            Some(_) | None => Verdict::Act(vec![Step::Fetch { revision: observed.remote.clone() }]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reconcile::reason::SUCCEEDED;
    use serde_json::json;

    fn acts(remote: &str, kept: Option<(&str, &Shape)>, shape: &Shape) -> bool {
        let kept = kept
            .map(|(revision, shape)| Kept { revision: revision.to_owned(), shape: shape.clone() });
        let settled = (SUCCEEDED, "stored".to_owned());
        let observed = Observed { remote: remote.to_owned(), kept, settled: settled.clone() };
        let desired = Desired { shape: shape.clone() };
        match Fetching::plan(&desired, &observed) {
            Verdict::Act(_) => true,
            Verdict::Rest(rest) => {
                assert_eq!(rest, Rest::Settled(settled.0, settled.1));
                false
            }
        }
    }

    #[test]
    fn only_a_new_revision_another_shape_or_lost_bytes_are_fetched() {
        let plain = Shape::default();
        let one = "main@sha1:1";
        assert!(acts(one, None, &plain));
        assert!(!acts(one, Some((one, &plain)), &plain));
        assert!(acts("main@sha1:2", Some((one, &plain)), &plain));
        let include = |digest: &str| json!([{"name": "lib", "digest": digest}]);
        let shapes = [
            Shape::default().with("ignore", "*.md"),
            Shape::default().with("recurseSubmodules", true),
            Shape::default().with("sparseCheckout", vec!["app"]),
            Shape::default().with("include", include("sha256:1")),
            Shape::default().with("include", include("sha256:2")),
        ];
        for (number, shape) in shapes.iter().enumerate() {
            for other in shapes[..number].iter().chain([&plain]) {
                assert!(acts(one, Some((one, other)), shape), "{shape:?} {other:?}");
            }
            assert!(!acts(one, Some((one, shape)), shape), "{shape:?}");
        }
    }

    #[test]
    fn what_says_nothing_is_as_if_it_were_absent() {
        let shape = Shape::default().with("a", None::<String>).with("b", false).with("c", "");
        assert_eq!(shape.with("d", Vec::<String>::new()), Shape::default());
    }
}
