//! Whether a reviewed pull request showed that objects leave the manifests of a Kustomization. Windlass builds the
//! Kustomization at the commits of the pull request to find that out.
//!
//! All builds use the present spec, variables and keys, so that each difference between them comes from the commits.
//! Here: the builds, and comparing them. Elsewhere: finding the pull request, its reviews and commits (crate
//! `source-controller`).

use std::collections::BTreeSet;
use std::sync::Arc;

use crds::kustomize::Kustomization;
use kube_core::ResourceExt as _;
use objects::ObjectId;
use reconcile::RunOutcome;
use tokio_util::sync::CancellationToken;
use tree::{MemoryTree, RelPath, TreeTrace};

use super::build::on_large_stack;
use super::build_inputs::KustomizationInputs;
use super::validated_spec::{
    self, BuildRequest, DesiredKustomization, KustomizationTimeouts, RemoteServerAccess,
};
use windlass_cluster::spec_references::ReadReferences;
use windlass_runtime::build::key_services::KeyServiceAccess;
use windlass_runtime::build::remote_base_access::{
    BuildPermits, RemoteBaseAccess, SharedBuildPermits,
};
use windlass_runtime::pull_request_approval::{RemovalRefusal, ReviewedRemoval};
use windlass_runtime::run_context::RunContext;

/// The reason why bases on other servers are not fetched.
const REMOTE_BASES: &str = "reviews of a pull request do not show what other servers have";

/// Checks that the reviewers of a pull request saw the removal of these objects.
///
/// * The merged commit does not have the objects.
/// * Every file that the build of the merged commit reads is the same in the last reviewed commit. So the result is the same,
///   too.
/// * Each commit before the merged one has the objects. So the pull request removed them, and not an earlier commit or a
///   change in the cluster.
///
/// # Errors
/// The text names the difference, or the reason why the check failed. It contains no value of a Secret.
pub async fn check_removal(
    context: Arc<RunContext>,
    removal: ReviewedRemoval,
) -> Result<(), RemovalRefusal> {
    let node = &removal.subject;
    let object = context.seen::<Kustomization>(&node.namespace, &node.name);
    let object = object.filter(|it| it.uid().as_deref() == Some(removal.uid.as_str()));
    let Some(object) = object else {
        return Err(RemovalRefusal::Unknown(
            "the Kustomization does not exist any more".to_owned(),
        ));
    };
    let unknown = |outcome: RunOutcome| RemovalRefusal::Unknown(outcome.text().to_owned());
    let timeouts = validated_spec::check(&object.spec).map_err(unknown)?;
    // These objects are watched by the runs of the Kustomization.
    let mut references = ReadReferences::new(&context.watcher);
    let inputs = KustomizationInputs::read(&context.settings, &object, &mut references).await;
    let inputs = inputs.map_err(unknown)?;
    let permit = context.building.acquire(&node.namespace).await;
    let cancel = CancellationToken::new();
    let _asked_for = cancel.clone().drop_guard();
    let permits = BuildPermits::new(&context, &node.namespace, permit, cancel.clone());
    let builds = CommitBuilds {
        object,
        timeouts,
        inputs,
        permits: SharedBuildPermits::new(permits),
        cancel: cancel.clone(),
        context: context.clone(),
    };
    let runtime = tokio::runtime::Handle::current();
    let compared = tokio::task::spawn_blocking(move || {
        // Threads that are made here do not know the runtime.
        on_large_stack(|| {
            let _within = runtime.enter();
            compare(&removal, |files| builds.build(files))
        })
    });
    match compared.await {
        Ok(Some(result)) => result,
        Ok(None) | Err(_) => Err(RemovalRefusal::Unknown(
            "the build panicked; this is a bug in windlass, please report it".to_owned(),
        )),
    }
}

/// The parts of a build that are compared.
struct BuiltCommit {
    ids: BTreeSet<ObjectId>,
    trace: TreeTrace,
}

impl BuiltCommit {
    /// Whether the build has an object. An object without a namespace is cluster-scoped. Its manifest may name a namespace,
    /// which the API server drops.
    fn has(&self, id: &ObjectId) -> bool {
        let is_same = |built: &ObjectId| {
            (&built.name, &built.group, &built.kind) == (&id.name, &id.group, &id.kind)
        };
        self.ids.contains(id) || id.namespace.is_empty() && self.ids.iter().any(is_same)
    }
}

/// Builds of one Kustomization at several commits, one after the other.
struct CommitBuilds {
    object: Arc<Kustomization>,
    timeouts: KustomizationTimeouts,
    inputs: KustomizationInputs,
    permits: SharedBuildPermits,
    cancel: CancellationToken,
    context: Arc<RunContext>,
}

impl CommitBuilds {
    fn build(&self, files: &MemoryTree) -> Result<BuiltCommit, String> {
        let Self { object, timeouts, inputs, permits, cancel, context } = self;
        let servers = RemoteServerAccess {
            bases: RemoteBaseAccess::Refused(REMOTE_BASES),
            keys: KeyServiceAccess::of(context, timeouts.timeout, permits.clone(), cancel.clone()),
        };
        let request = BuildRequest { object, timeouts: *timeouts, files, revision: "", inputs };
        let built = validated_spec::desired(&request, servers, &context.settings);
        let built = built.map_err(|outcome| outcome.text().to_owned())?;
        let DesiredKustomization { desired, trace, .. } = built;
        let manifests = desired.stages.iter().flat_map(|stage| &stage.objects);
        let ids = manifests.map(|manifest| manifest.id.clone()).collect();
        Ok(BuiltCommit { ids, trace })
    }
}

/// Compares the builds of the commits.
fn compare(
    removal: &ReviewedRemoval,
    build: impl Fn(&MemoryTree) -> Result<BuiltCommit, String>,
) -> Result<(), RemovalRefusal> {
    let built = |what: &str, files: &MemoryTree| {
        let built = build(files);
        built.map_err(|why| RemovalRefusal::Unknown(format!("{what} cannot be built: {why}")))
    };
    let merged = built("the merged commit", &removal.merged)?;
    let back: Vec<&ObjectId> = removal.ids.iter().filter(|id| merged.has(id)).collect();
    if let [first, ..] = back[..] {
        let text = format!("the merged commit has {}", first.subject());
        return Err(RemovalRefusal::NotShown(text));
    }
    let changed = merged.trace.changed_in(&*removal.head);
    if !changed.is_empty() {
        let paths = changed.into_iter().map(RelPath::to_string).collect();
        return Err(RemovalRefusal::Different(paths));
    }
    for files in &removal.before {
        let before = built("a commit before the pull request", files)?;
        let missing: Vec<&ObjectId> = removal.ids.iter().filter(|id| !before.has(id)).collect();
        if let [first, rest @ ..] = &missing[..] {
            let more = match rest.len() {
                0 => String::new(),
                count => format!(" and {count} more"),
            };
            let text = format!(
                "{}{more} left the manifests for another reason: a commit before the pull request lacks it, too",
                first.subject()
            );
            return Err(RemovalRefusal::NotShown(text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use reconcile::ObjectKey;
    use tree::{FileTree as _, TreeRecorder};

    use super::*;

    fn files(of: &[(&str, &str)]) -> Arc<MemoryTree> {
        Arc::new(MemoryTree::from_files(of.iter().copied()).unwrap())
    }

    fn id(name: &str) -> ObjectId {
        ObjectId::new("shop", name, "", "ConfigMap")
    }

    /// A build that makes a ConfigMap of each line of a file.
    fn build(files: &MemoryTree) -> Result<BuiltCommit, String> {
        let recorder = TreeRecorder::new(files);
        let text = recorder.read(&RelPath::parse("app/maps").unwrap());
        let text = text.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(BuiltCommit { ids: text.lines().map(id).collect(), trace: recorder.seen() })
    }

    fn removal(merged: &str, head: &str, before: &[&str]) -> ReviewedRemoval {
        let commit = |maps: &str| files(&[("app/maps", maps), ("README.md", maps)]);
        ReviewedRemoval {
            subject: ObjectKey::new("kustomize.toolkit.fluxcd.io", "Kustomization", "shop", "app"),
            uid: "uid".to_owned(),
            ids: [id("a"), id("b")].into(),
            merged: commit(merged),
            head: commit(head),
            before: before.iter().map(|maps| commit(maps)).collect(),
        }
    }

    #[test]
    fn what_the_pull_request_removed_and_nothing_else_was_shown() {
        assert_eq!(compare(&removal("c", "c", &["a\nb\nc", "a\nb"]), build), Ok(()));
    }

    #[test]
    fn another_merge_between_is_named_with_its_files() {
        let between = compare(&removal("c\nd", "c", &["a\nb\nc"]), build);
        assert_eq!(between, Err(RemovalRefusal::Different(vec!["app/maps".to_owned()])));
        // A file that the build does not read may differ.
        let mut other = removal("c", "c", &["a\nb\nc"]);
        other.head = files(&[("app/maps", "c"), ("README.md", "another"), ("new", "")]);
        assert_eq!(compare(&other, build), Ok(()));
    }

    #[test]
    fn objects_that_left_earlier_or_are_still_there_were_not_shown() {
        for (merged, before) in [("c", vec!["a\nb", "a"]), ("c", vec!["c"]), ("a\nc", vec!["a\nb"])]
        {
            let refused = compare(&removal(merged, merged, &before), build);
            assert!(matches!(refused, Err(RemovalRefusal::NotShown(_))), "{refused:?}");
        }
    }

    #[test]
    fn a_commit_that_cannot_be_built_is_not_taken_for_one_without_objects() {
        let mut removal = removal("c", "c", &["a\nb"]);
        removal.before.push(files(&[("README.md", "")]));
        let refused = compare(&removal, build);
        assert!(matches!(refused, Err(RemovalRefusal::Unknown(_))), "{refused:?}");
        removal.merged = files(&[]);
        assert!(matches!(compare(&removal, build), Err(RemovalRefusal::Unknown(_))));
    }

    #[test]
    fn a_cluster_scoped_object_is_found_whatever_namespace_its_manifest_has() {
        let built = |namespace: &str| BuiltCommit {
            ids: [ObjectId::new(namespace, "admin", "rbac.authorization.k8s.io", "ClusterRole")]
                .into(),
            trace: TreeTrace::default(),
        };
        let live = ObjectId::new("", "admin", "rbac.authorization.k8s.io", "ClusterRole");
        assert!(built("shop").has(&live) && built("").has(&live));
        let namespaced =
            ObjectId::new("other", "admin", "rbac.authorization.k8s.io", "ClusterRole");
        assert!(!built("shop").has(&namespaced));
    }
}
