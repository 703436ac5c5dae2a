//! Who else has a release: two owners of one release would undo each other's work for ever.

use std::sync::Arc;

use crds::Reconciled;
use crds::helm::HelmRelease;
use crds::helmfile::{Helmfile, HelmfileStatus, operator};
use kube::core::ResourceExt as _;
use reconcile::Node;
use release::snapshot::Match;
use release::{Record, Snapshot, snapshot};

use crate::cluster::kind::OurKind;
use crate::controllers::context::Context;
use crate::controllers::kind::node_of;
use crate::controllers::record::through;

/// The object besides the asking one that has the release of a record by what its status says: the one with this uid, if
/// there is one, else whichever has it. Without a uid its newest revision has to be this very record: a release of the same
/// name in another cluster is another release.
pub(crate) fn holder(
    context: &Context,
    asking: &Node,
    uid: Option<&str>,
    last: &Record,
) -> Option<Node> {
    let releases = context.store::<HelmRelease>().state();
    let of_release = |it: &HelmRelease| {
        let history = it.status.as_ref().map(|status| status.history.as_slice());
        has(history.unwrap_or_default(), uid.is_some(), last)
    };
    let of_releases = first(&releases, (asking, uid), of_release);
    let ours = || helmfile::<Helmfile>(context, (asking, uid), last);
    of_releases
        .or_else(ours)
        .or_else(|| helmfile::<operator::Helmfile>(context, (asking, uid), last))
}

/// The first object but the asking one that `has` the release.
fn first<K: OurKind>(
    all: &[Arc<K>],
    (asking, uid): (&Node, Option<&str>),
    has: impl Fn(&K) -> bool,
) -> Option<Node> {
    let its = all.iter().filter(|it| uid.is_none_or(|uid| it.uid().as_deref() == Some(uid)));
    its.filter(|it| has(it)).map(|it| node_of(&**it)).find(|node| node != asking)
}

/// The Helmfile among those of a kind.
fn helmfile<K>(context: &Context, of: (&Node, Option<&str>), last: &Record) -> Option<Node>
where
    K: OurKind + Reconciled<Status = HelmfileStatus>,
{
    let is_its = |it: &K| {
        let rows = it.status().map(|status| status.releases.as_slice()).unwrap_or_default();
        rows.iter().any(|row| has(&row.status.history, of.1.is_some(), last))
    };
    first(&context.store::<K>().state(), of, is_its)
}

/// Whether a history is of the release of a record. `is_known` says that the journal beside it names its owner.
pub(crate) fn has(history: &[crds::helm::Snapshot], is_known: bool, last: &Record) -> bool {
    let is_named =
        |it: &crds::helm::Snapshot| it.name == last.name && it.namespace == last.namespace;
    if !history.iter().any(is_named) {
        return false;
    }
    let history: Vec<Snapshot> = through(&history).unwrap_or_default();
    let is_it = |it: &Snapshot| it.targets(last) && it.matches(last) == Ok(Match::Same);
    is_known || snapshot::latest(&history).is_some_and(is_it)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use golang::value::{Map, Type};
    use release::record::{Info, Status};

    use super::*;

    fn record(description: &str) -> Record {
        let info = Info {
            status: Status::Deployed,
            first_deployed: Some(reconcile::Time::UNIX_EPOCH.into()),
            last_deployed: Some(reconcile::Time::UNIX_EPOCH.into()),
            description: description.to_owned(),
            ..Info::default()
        };
        let (name, namespace) = ("web".to_owned(), "apps".to_owned());
        Record {
            name,
            namespace,
            version: 1,
            info,
            chart: None,
            config: Map::new(Type::Any, []),
            manifest: String::new(),
            hooks: Vec::new(),
            apply_method: String::new(),
            labels: BTreeMap::new(),
        }
    }

    #[test]
    fn a_release_of_the_same_name_and_version_in_another_cluster_is_another_one() {
        let here = record("Install complete");
        let known = Snapshot::of(&here, None, "").unwrap();
        let history: Vec<crds::helm::Snapshot> = through(&[known]).unwrap();
        assert!(has(&history, false, &here));
        let there = record("Upgrade complete");
        assert!(!has(&history, false, &there), "the names are the same");
        assert!(has(&history, true, &there), "its journal names the owner");
        assert!(!has(&[], true, &here));
    }
}
