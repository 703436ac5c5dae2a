//! Who else has a release: two owners of one release would undo each other's work for ever.

use crds::helm::HelmRelease;
use crds::helmfile::Helmfile;
use kube::core::ResourceExt as _;
use reconcile::Node;
use release::{Record, Snapshot, snapshot};

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
    let helmfiles = context.store::<Helmfile>().state();
    let mut helmfiles = helmfiles.iter().filter(|it| is_it(it.uid()));
    let is_its = |it: &Helmfile| {
        let rows = it.status.as_ref().map(|status| status.releases.as_slice()).unwrap_or_default();
        let mut rows = rows.iter().filter(|row| !row.status.history.is_empty());
        rows.any(|row| row.name == last.name && row.namespace == last.namespace)
    };
    helmfiles.find(|it| is_its(it)).map(|helmfile| node_of(&**helmfile))
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
