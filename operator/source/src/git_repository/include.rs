//! The artifacts that a GitRepository includes (`spec.include`). They are found before anything is fetched.
//!
//! Here: waiting for them, cycles, the paths. Elsewhere: copying the files (`artifact_file_selection.rs`).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crds::source::{GitRepository, GitRepositoryInclude};
use crds::{Artifact, ArtifactSource as _};
use kube_core::ResourceExt as _;
use reconcile::{DependencyEdge, NextRunTrigger, ObjectKey, RunOutcome};
use serde_json::{Value, json};
use sources::source_condition_reasons::{
    ILLEGAL_PATH, INCLUDE_CYCLE, INVALID_INCLUDE, NO_ARTIFACT, NOT_FOUND,
};
use tree::RelPath;

use windlass_runtime::controller_kind::node_named;
use windlass_runtime::run_context::RunContext;
use windlass_runtime::source_catalog::artifact_owner;

/// Most entries of `spec.include`. Differs(flux): there may be any number.
const MOST_INCLUDES: usize = 64;

/// The includes of an object. A list that is too long counts as empty.
fn included(object: &GitRepository) -> &[GitRepositoryInclude] {
    let all = &object.spec.include;
    if all.len() <= MOST_INCLUDES { all } else { &[] }
}

/// One entry of `spec.include`, ready to be copied.
#[derive(Debug, Clone)]
pub(super) struct RepositoryInclude {
    /// The GitRepository that is included.
    pub(super) node: ObjectKey,
    /// The artifact of the included GitRepository.
    pub(super) artifact: Artifact,
    /// The folder of the included artifact that is copied.
    pub(super) from: RelPath,
    /// The folder to which the files are copied.
    pub(super) to: RelPath,
    spec: GitRepositoryInclude,
}

impl RepositoryInclude {
    /// The include in the form in which the plan compares it.
    pub(super) fn shape(&self) -> Value {
        shape(&self.spec, &self.artifact)
    }
}

/// An entry of the spec, or of the status, together with the artifact that it stood for.
pub(super) fn shape(spec: &GitRepositoryInclude, artifact: &Artifact) -> Value {
    json!([spec.repository.name, spec.from_path, spec.to_path, artifact.revision, artifact.digest])
}

/// Tells the work queue which GitRepositories are included, so that their new artifacts wake this object.
pub(super) fn edges(context: &RunContext, node: &ObjectKey, object: &GitRepository) {
    let nodes: BTreeSet<ObjectKey> = included(object)
        .iter()
        .map(|include| node_named::<GitRepository>(&node.namespace, &include.repository.name))
        .collect();
    context.work_queue.set_edges(node, DependencyEdge::Source, nodes);
}

/// Finds what is included, as the watch last saw it.
///
/// Differs(flux): there a GitRepository may include itself, and grows at every run.
pub(super) fn resolve(
    context: &RunContext,
    node: &ObjectKey,
    object: &GitRepository,
) -> Result<Vec<RepositoryInclude>, RunOutcome> {
    let namespace = &node.namespace;
    let name = object.name_any();
    let find = |name: &str| context.seen::<GitRepository>(namespace, name);
    let count = object.spec.include.len();
    if count > MOST_INCLUDES {
        let text = format!("spec.include has {count} entries, which is more than {MOST_INCLUDES}");
        return Err(RunOutcome::Stalled(INVALID_INCLUDE, text));
    }
    let names = |object: &GitRepository| {
        included(object).iter().map(|it| it.repository.name.clone()).collect::<Vec<_>>()
    };
    if names(object).contains(&name) {
        let text = "spec.include names this GitRepository itself; remove that entry";
        return Err(RunOutcome::Stalled(INCLUDE_CYCLE, text.to_owned()));
    }
    let way = cycle(&name, names(object), |other| find(other).map_or(Vec::new(), |o| names(&o)));
    if let Some(way) = way {
        let others = way.iter().map(|name| node_named::<GitRepository>(namespace, name));
        let text = format!(
            "spec.include leads back to this GitRepository: {}; remove one of these includes",
            way.join(" → ")
        );
        return Err(RunOutcome::Blocked(INCLUDE_CYCLE, text, NextRunTrigger::on(others)));
    }
    let include = |spec: &GitRepositoryInclude| {
        let other = &spec.repository.name;
        let node = node_named::<GitRepository>(namespace, other);
        let blocked =
            |why, text: String| RunOutcome::Blocked(why, text, NextRunTrigger::on([node.clone()]));
        let missing = || {
            let text = format!(
                "could not get resource for include '{other}': GitRepository '{namespace}/{other}' not found; \
                 create it or correct spec.include"
            );
            blocked(NOT_FOUND, text)
        };
        let found = find(other).ok_or_else(missing)?;
        let none = || blocked(NO_ARTIFACT, format!("no artifact available for include '{other}'"));
        let artifact = found.artifact().cloned().ok_or_else(none)?;
        artifact_owner::check(&node, &artifact, false).map_err(|why| blocked(NO_ARTIFACT, why))?;
        let from = inside("fromPath", spec.from_path.as_deref().unwrap_or_default())?;
        let to = inside("toPath", spec.to_path.as_deref().unwrap_or(other))?;
        Ok(RepositoryInclude { node: node.clone(), artifact, from, to, spec: spec.clone() })
    };
    included(object).iter().map(include).collect()
}

/// A path in a tree. Parity(flux): a leading `/` stands for the root of the tree.
/// Differs(flux): there a path that climbs out is cut off at the root; here it is refused.
fn inside(field: &str, path: &str) -> Result<RelPath, RunOutcome> {
    RelPath::parse(path.trim_start_matches('/')).map_err(|error| {
        RunOutcome::Stalled(ILLEGAL_PATH, format!("spec.include[].{field}: {error}"))
    })
}

/// The shortest way by which a name leads back to itself, from itself to itself. `None` if there is no such way.
pub(crate) fn cycle(
    start: &str,
    first: Vec<String>,
    next: impl Fn(&str) -> Vec<String>,
) -> Option<Vec<String>> {
    let mut reached_from = BTreeMap::<String, String>::new();
    let mut queue: VecDeque<(String, String)> =
        first.into_iter().map(|name| (start.to_owned(), name)).collect();
    while let Some((from, name)) = queue.pop_front() {
        if name == start {
            let mut way = vec![name];
            let mut at = from;
            while at != start {
                // Every followed name has a predecessor. If one had none, the path would end here.
                let before = reached_from.get(&at).cloned().unwrap_or_else(|| start.to_owned());
                way.push(std::mem::replace(&mut at, before));
            }
            way.push(at);
            way.reverse();
            return Some(way);
        }
        if let Entry::Vacant(place) = reached_from.entry(name) {
            let name = place.key().clone();
            queue.extend(next(&name).into_iter().map(|further| (name.clone(), further)));
            place.insert(from);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(edges: &[(&str, &str)]) -> Option<String> {
        let next = |name: &str| {
            let from = edges.iter().filter(|(from, _)| *from == name);
            from.map(|(_, to)| (*to).to_owned()).collect::<Vec<_>>()
        };
        cycle("a", next("a"), next).map(|way| way.join(" "))
    }

    #[test]
    fn a_cycle_is_reported_by_its_shortest_path() {
        assert_eq!(
            way(&[("a", "b"), ("b", "c"), ("c", "a"), ("b", "a")]).as_deref(),
            Some("a b a")
        );
        assert_eq!(way(&[("a", "b"), ("b", "c"), ("c", "a")]).as_deref(), Some("a b c a"));
    }

    #[test]
    fn a_cycle_of_others_and_a_diamond_are_none_of_ours() {
        assert_eq!(way(&[("a", "b"), ("b", "c"), ("c", "b")]), None);
        assert_eq!(way(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]), None);
        assert_eq!(way(&[]), None);
    }

    #[test]
    fn paths_stay_in_their_trees() {
        assert_eq!(inside("toPath", "/a/../b").unwrap().as_str(), "b");
        assert!(inside("fromPath", "").unwrap().is_root());
        let outcome = inside("fromPath", "a/../../b").unwrap_err();
        assert!(matches!(outcome, RunOutcome::Stalled(ILLEGAL_PATH, _)), "{outcome:?}");
        assert!(outcome.text().starts_with("spec.include[].fromPath: "), "{}", outcome.text());
    }
}
