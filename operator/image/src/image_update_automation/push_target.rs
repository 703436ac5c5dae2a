//! The references to which the commits of an automation are pushed: the push branch, and the references of `push.refspec`.
//!
//! Elsewhere: the repository (`automation_git_repository`), what a refspec means (`git::push`), pushing (`push_round`).

use crds::image::GitPushSpec;
use crds::source::GitRepositoryRef;
use git::GitReference;
use git::push::{PushRequest, ReferenceUpdate, ReferenceUpdateRule, refspec_destination};
use reconcile::RunOutcome;

use super::automation_git_repository::{invalid, unconfigured};

/// The references to which commits are pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PushTarget {
    /// The branch, without `refs/heads/`.
    pub(super) branch: String,
    /// Whether the push branch is the branch that is fetched.
    pub(super) is_checkout: bool,
    /// `spec.git.push.refspec`.
    pub(super) refspec: Option<String>,
    /// The parsed refspec, or the reason why it is invalid.
    refspec_targets: Result<Vec<RefspecTarget>, String>,
    options: Vec<String>,
}

/// A reference that a refspec leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RefspecTarget {
    /// The full name of the reference.
    name: String,
    /// Whether the fetched branch is pushed to this reference as it was fetched, instead of the push branch.
    is_of_checkout: bool,
    /// Whether the reference may only move forward.
    is_protected: bool,
}

impl PushTarget {
    /// Parity(flux): without `spec.git.push.branch` it is the branch of the reference that is fetched. A refspec that means no
    /// reference is an error only when the branch has been pushed.
    pub(super) fn new(
        push: Option<&GitPushSpec>,
        checkout: Option<&GitRepositoryRef>,
        reference: &GitReference,
    ) -> Result<Self, RunOutcome> {
        let given = push.and_then(|push| push.branch.as_ref());
        let branch = given.or(checkout.and_then(|checkout| checkout.branch.as_ref()));
        let branch = branch.cloned().ok_or_else(|| {
            unconfigured(
                "push spec not provided, and cannot be inferred from .spec.git.checkout.ref or \
                 GitRepository .spec.ref",
            )
        })?;
        let refspec = push.and_then(|push| push.refspec.clone());
        match refspec.as_deref().and_then(|refspec| refspec.chars().next()) {
            Some(':') => return Err(invalid("push refspec must not specify a deletion")),
            Some('+') => return Err(invalid("push refspec must not specify a force update")),
            _ => {}
        }
        let refspec_targets = match &refspec {
            Some(refspec) => refspec_targets(refspec, &branch, reference),
            None => Ok(Vec::new()),
        };
        let options = push.into_iter().flat_map(|push| &push.options);
        Ok(Self {
            is_checkout: *reference == GitReference::Branch(branch.clone()),
            branch,
            refspec,
            refspec_targets,
            options: options.map(|(key, value)| format!("{key}={value}")).collect(),
        })
    }

    /// The full name of the branch.
    fn branch_reference(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    /// Whether an unchanged reference means that there is nothing to do. It does only if the reference shows what was pushed
    /// before.
    pub(super) fn is_known_by_checkout(&self) -> bool {
        self.is_checkout && self.refspec.is_none()
    }

    /// The request that pushes to the push branch; `rule` decides how the branch may be updated.
    pub(super) fn request(&self, rule: ReferenceUpdateRule) -> PushRequest {
        let update = ReferenceUpdate { name: self.branch_reference(), commit: None, rule };
        PushRequest { references: vec![update], options: self.options.clone() }
    }

    /// A push to the references of the refspec, once the branch is pushed; `None` if there are none. `fetched` is the commit of
    /// the branch that was fetched.
    ///
    /// Parity(flux): they are overwritten if `is_forced`, unless the push branch is the one that is fetched. Differs(flux): the
    /// branch that is fetched only moves forward; so does what `HEAD` leads to, which means the push branch and is an error
    /// there.
    ///
    /// # Errors
    /// The refspec means no reference.
    pub(super) fn refspec_request(
        &self,
        fetched: &str,
        is_forced: bool,
    ) -> Result<Option<PushRequest>, &str> {
        let branch = self.branch_reference();
        let targets = self.refspec_targets.as_ref().map_err(String::as_str)?;
        let update = |target: &RefspecTarget| {
            let is_overwritten = is_forced && !self.is_checkout && !target.is_protected;
            ReferenceUpdate {
                name: target.name.clone(),
                commit: target.is_of_checkout.then(|| fetched.to_owned()),
                rule: if is_overwritten {
                    ReferenceUpdateRule::Overwrite
                } else {
                    ReferenceUpdateRule::FastForward
                },
            }
        };
        let others = targets.iter().filter(|target| target.name != branch);
        let references: Vec<ReferenceUpdate> = others.map(update).collect();
        let has_any = !references.is_empty();
        Ok(has_any.then(|| PushRequest { references, options: self.options.clone() }))
    }
}

/// Parses a refspec for a push of `branch`, if `reference` is fetched.
///
/// # Errors
/// The text says why the refspec is invalid.
fn refspec_targets(
    refspec: &str,
    branch: &str,
    reference: &GitReference,
) -> Result<Vec<RefspecTarget>, String> {
    let is_head = refspec.split(':').next() == Some("HEAD");
    let checkout = match reference {
        GitReference::Branch(checkout) => Some(checkout.as_str()),
        _ => None,
    };
    let fetched = checkout.map(|checkout| format!("refs/heads/{checkout}"));
    let target = |name: String, is_of_checkout: bool| {
        let is_protected = is_head || Some(&name) == fetched.as_ref();
        RefspecTarget { name, is_of_checkout, is_protected }
    };
    let other = checkout.filter(|checkout| *checkout != branch && !is_head);
    let of_checkout = other.and_then(|other| refspec_destination(refspec, other).ok());
    let of_checkout = of_checkout.map(|name| target(name, true));
    match (refspec_destination(refspec, branch), of_checkout) {
        (Err(error), None) => Err(error.to_string()),
        (Err(_), Some(of_checkout)) => Ok(vec![of_checkout]),
        (Ok(name), of_checkout) => {
            Ok(std::iter::once(target(name, false)).chain(of_checkout).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use windlass_runtime::git_remote_access;

    use super::super::automation_git_repository::{
        INVALID_SOURCE_CONFIGURATION, SOURCE_MANAGER_FAILED,
    };
    use super::*;

    fn target(push: &Value, checkout: &Value) -> Result<PushTarget, RunOutcome> {
        let push: Option<GitPushSpec> = serde_json::from_value(push.clone()).unwrap();
        let checkout: Option<GitRepositoryRef> = serde_json::from_value(checkout.clone()).unwrap();
        let reference = git_remote_access::reference(checkout.as_ref()).unwrap();
        PushTarget::new(push.as_ref(), checkout.as_ref(), &reference)
    }

    #[test]
    fn commits_go_to_the_given_branch_or_to_the_one_that_is_fetched() {
        for (push, checkout, branch, is_checkout) in [
            (json!(null), json!({"branch": "main"}), "main", true),
            (json!({"branch": "main"}), json!({"branch": "main"}), "main", true),
            (json!({"branch": "auto"}), json!({"branch": "main"}), "auto", false),
            // Nothing given means the branch `master`, but nothing is pushed there unasked.
            (json!({"branch": "master"}), json!(null), "master", true),
            (json!({"branch": "main"}), json!({"tag": "v1", "branch": "main"}), "main", false),
        ] {
            let target = target(&push, &checkout).unwrap();
            assert_eq!((target.branch.as_str(), target.is_checkout), (branch, is_checkout));
        }
        for checkout in [json!(null), json!({"tag": "v1"}), json!({"semver": "*"})] {
            let outcome = target(&json!({"refspec": "HEAD:refs/x"}), &checkout).unwrap_err();
            let text = outcome.text();
            assert_eq!(outcome.reason(), SOURCE_MANAGER_FAILED);
            assert!(text.contains("push spec not provided, and cannot be inferred"), "{text}");
        }
    }

    #[test]
    fn a_refspec_is_pushed_after_the_branch_and_forced_beside_the_checkout_only() {
        let main = json!({"branch": "main"});
        let of = |refspec: &str| target(&json!({"refspec": refspec}), &main);
        let beside =
            |refspec: &str| target(&json!({"branch": "auto", "refspec": refspec}), &main).unwrap();
        let updates = |target: &PushTarget, is_forced: bool| {
            let request = target.refspec_request("1", is_forced).unwrap().unwrap_or_default();
            let name = |it: &ReferenceUpdate| it.name.strip_prefix("refs/").unwrap().to_owned();
            let of = |it: &ReferenceUpdate| (name(it), it.commit.is_some(), it.rule.clone());
            request.references.iter().map(of).collect::<Vec<_>>()
        };
        let update = |name: &str, is_fetched: bool, rule: ReferenceUpdateRule| {
            vec![(name.to_owned(), is_fetched, rule)]
        };
        let [forward, overwrite] =
            [ReferenceUpdateRule::FastForward, ReferenceUpdateRule::Overwrite];
        let branch = of("refs/heads/main:refs/heads/x").unwrap();
        let request = branch.request(ReferenceUpdateRule::FastForward);
        assert_eq!(request.references.len(), 1, "the branch has a push of its own");
        assert_eq!(updates(&branch, true), update("heads/x", false, forward.clone()));
        let review = of("HEAD:refs/for/main").unwrap();
        assert_eq!(updates(&review, true), update("for/main", false, forward.clone()));
        let same = of("HEAD:refs/heads/main").unwrap();
        assert_eq!(same.refspec_request("1", true), Ok(None), "it is pushed already");
        let auto = beside("refs/heads/auto:refs/heads/x");
        assert_eq!(updates(&auto, true), update("heads/x", false, overwrite.clone()));
        assert_eq!(updates(&auto, false), update("heads/x", false, forward.clone()));
        let head = beside("HEAD:refs/heads/x");
        assert_eq!(updates(&head, true), update("heads/x", false, forward));
        let fetched = beside("refs/heads/main:refs/heads/x");
        assert_eq!(updates(&fetched, true), update("heads/x", true, overwrite));
        let main = beside("refs/heads/auto:refs/heads/main");
        assert_eq!(
            updates(&main, true),
            update("heads/main", false, ReferenceUpdateRule::FastForward)
        );
        let both = updates(&beside("refs/heads/*:refs/heads/copy/*"), true);
        let names: Vec<_> =
            both.iter().map(|(name, is_fetched, _)| (name.as_str(), *is_fetched)).collect();
        assert_eq!(names, [("heads/copy/auto", false), ("heads/copy/main", true)]);
        for refspec in ["main", "refs/heads/none:refs/heads/x"] {
            let target = of(refspec).unwrap();
            let error = target.refspec_request("1", true).unwrap_err();
            assert!(error.starts_with(&format!("invalid refspec `{refspec}`: ")), "{error}");
        }
        for (refspec, text) in [
            (
                ":refs/heads/x",
                "push refspec must not specify a deletion: invalid source configuration",
            ),
            (
                "+refs/heads/main:refs/heads/x",
                "push refspec must not specify a force update: invalid source configuration",
            ),
        ] {
            let outcome = of(refspec).unwrap_err();
            assert!(matches!(outcome, RunOutcome::Stalled(INVALID_SOURCE_CONFIGURATION, _)));
            assert_eq!(outcome.text(), text);
        }
    }

    #[test]
    fn push_options_are_keys_with_values() {
        let push = json!({"options": {"merge_request.target": "main", "ci.skip": ""}});
        let target = target(&push, &json!({"branch": "main"})).unwrap();
        let request = target.request(ReferenceUpdateRule::FastForward);
        assert_eq!(request.options, ["ci.skip=", "merge_request.target=main"]);
    }
}
