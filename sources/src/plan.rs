//! Decides whether a source has to be fetched: the same for every kind of source.
//!
//! Here: the decision. Elsewhere: asking the remote and fetching (one module a protocol), the store.

use reconcile::{Kind, Rest, Verdict, reason};

/// Marks the decision of a source's run.
pub struct Fetching;

/// What shapes an archive besides the revision of its source. A change of any of it makes a new artifact.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shape {
    /// `spec.ignore`.
    pub ignore: Option<String>,
    /// `spec.recurseSubmodules`.
    pub submodules: bool,
    /// `spec.sparseCheckout`.
    pub sparse_checkout: Vec<String>,
    /// `spec.include`, in its order.
    pub include: Vec<Included>,
}

/// The artifact of another source, or a part of it, as a part of this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Included {
    /// The other source.
    pub name: String,
    /// What is copied, as it was given.
    pub from: Option<String>,
    /// Where to, as it was given.
    pub to: Option<String>,
    /// Revision of the other's artifact.
    pub revision: String,
    /// Digest of the other's artifact.
    pub digest: String,
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
                let text = format!("stored artifact for revision '{}'", kept.revision);
                Verdict::Rest(Rest::Settled(reason::SUCCEEDED, text))
            }
            Some(_) | None => Verdict::Act(vec![Step::Fetch { revision: observed.remote.clone() }]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acts(remote: &str, kept: Option<(&str, &Shape)>, shape: &Shape) -> bool {
        let kept = kept
            .map(|(revision, shape)| Kept { revision: revision.to_owned(), shape: shape.clone() });
        let observed = Observed { remote: remote.to_owned(), kept };
        let desired = Desired { shape: shape.clone() };
        matches!(Fetching::plan(&desired, &observed), Verdict::Act(_))
    }

    #[test]
    fn only_a_new_revision_another_shape_or_lost_bytes_are_fetched() {
        let plain = Shape::default();
        let one = "main@sha1:1";
        assert!(acts(one, None, &plain));
        assert!(!acts(one, Some((one, &plain)), &plain));
        assert!(acts("main@sha1:2", Some((one, &plain)), &plain));
        let included = |digest: &str| Included {
            name: "lib".to_owned(),
            from: None,
            to: None,
            revision: one.to_owned(),
            digest: digest.to_owned(),
        };
        let shapes = [
            Shape { ignore: Some("*.md".to_owned()), ..Shape::default() },
            Shape { submodules: true, ..Shape::default() },
            Shape { sparse_checkout: vec!["app".to_owned()], ..Shape::default() },
            Shape { include: vec![included("sha256:1")], ..Shape::default() },
            Shape { include: vec![included("sha256:2")], ..Shape::default() },
        ];
        for (number, shape) in shapes.iter().enumerate() {
            for other in shapes[..number].iter().chain([&plain]) {
                assert!(acts(one, Some((one, other)), shape), "{shape:?} {other:?}");
            }
            assert!(!acts(one, Some((one, shape)), shape), "{shape:?}");
        }
    }
}
