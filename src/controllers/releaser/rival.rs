//! Who else has a release: two owners of one release would undo each other's work for ever.

use std::sync::Arc;

use crds::Reconciled;
use crds::helm::HelmRelease;
use crds::helmfile::{Helmfile, HelmfileStatus, operator};
use kube::core::ResourceExt as _;
use reconcile::Node;
use release::{Record, Snapshot, snapshot};

use crate::cluster::kind::OurKind;
use crate::controllers::context::Context;
use crate::controllers::kind::node_of;
use crate::controllers::record::through;

/// The object that has the release of a record by what its status says: the one with this uid, if there is one, else
/// whichever has it.
pub(crate) fn holder(context: &Context, uid: Option<&str>, last: &Record) -> Option<Node> {
    let is_it = |of: Option<String>| uid.is_none_or(|uid| of.as_deref() == Some(uid));
    let releases = context.store::<HelmRelease>().state();
    let mut releases = releases.iter().filter(|it| is_it(it.uid()));
    if let Some(release) = releases.find(|it| has(it, last)) {
        return Some(node_of(&**release));
    }
    let ours = helmfile::<Helmfile>(context, uid, last);
    ours.or_else(|| helmfile::<operator::Helmfile>(context, uid, last))
}

/// The Helmfile among those of a kind.
fn helmfile<K>(context: &Context, uid: Option<&str>, last: &Record) -> Option<Node>
where
    K: OurKind + Reconciled<Status = HelmfileStatus>,
{
    let is_it = |it: &&Arc<K>| uid.is_none_or(|uid| it.uid().as_deref() == Some(uid));
    let is_its = |it: &&Arc<K>| {
        let rows = it.status().map(|status| status.releases.as_slice()).unwrap_or_default();
        let mut rows = rows.iter().filter(|row| !row.status.history.is_empty());
        rows.any(|row| row.name == last.name && row.namespace == last.namespace)
    };
    let all = context.store::<K>().state();
    all.iter().filter(is_it).find(is_its).map(|helmfile| node_of(&**helmfile))
}

/// Whether the newest revision that a HelmRelease knows is one of the release of a record.
fn has(release: &HelmRelease, last: &Record) -> bool {
    let Some(status) = &release.status else { return false };
    let is_named =
        |it: &crds::helm::Snapshot| it.name == last.name && it.namespace == last.namespace;
    if !status.history.iter().any(is_named) {
        return false;
    }
    let history: Vec<Snapshot> = through(&status.history).unwrap_or_default();
    snapshot::latest(&history).is_some_and(|it| it.targets(last))
}
