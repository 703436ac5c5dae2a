//! Finds out from Leases whether an operator is active. If none is active, the statuses of objects may be outdated.
//!
//! A Lease that is missing or unreadable proves nothing. Without leader election, windlass has no Lease, and windlass may run
//! in another namespace.
//! Elsewhere: all operators of a cluster ([`super`]), operators outside of the cluster (`external_operator.rs`), checking an
//! installation (`check.rs`).

use jiff::{SignedDuration, Timestamp};
use objects::Object;

use super::{LeaseHolder, OWN_LEASE, holder, identity, lease_resource, renewed};
use windlass_cli_runtime::connection::{ProgressGlyph, say};
use windlass_cluster::ClusterConnection;
use windlass_cluster::election::{REPLACED_CONTROLLERS, controller_of_lease};

/// The environment variable for the namespace of the installation, and its default. All commands use this variable.
const NAMESPACE: (&str, &str) = ("FLUX_SYSTEM_NAMESPACE", "flux-system");

/// The Leases of operators that apply objects. windlass or Flux's controllers hold one of them.
const LEASES: [&str; 3] =
    [OWN_LEASE, "kustomize-controller-leader-election", "helm-controller-leader-election"];

/// How much the last renewals of one process's Leases may differ. A process that cannot renew a Lease for that long stops.
const MOST_APART: SignedDuration = SignedDuration::from_secs(30);

/// A Lease without a renewal for this long is reported. A live process renews its Lease three times meanwhile, unless
/// `--leader-election-retry-period` is longer.
const LATE_RENEWAL: SignedDuration = SignedDuration::from_secs(15);

/// What the Leases say about the operator that reconciles objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperatorPresence {
    /// A process holds the Lease of windlass. A killed process holds the Lease until it expires.
    Held(LeaseHolder),
    /// No process holds the Lease that was last held. Contains the Lease, as text.
    Vacant(String),
    /// There is no Lease, or a Lease cannot be read.
    Unknown,
}

/// Finds the process that holds the Lease of windlass, or held it last. Returns `Unknown` if the Leases do not say.
pub async fn presence(cluster: &ClusterConnection, now: Timestamp) -> OperatorPresence {
    leases(cluster).await.map_or(OperatorPresence::Unknown, |leases| presence_of(&leases, now))
}

/// Finds the process from Leases that were already read. If Flux's controllers hold their Leases, nothing is known about
/// windlass.
fn presence_of(leases: &[Object], now: Timestamp) -> OperatorPresence {
    let mut own = leases.iter().filter(|lease| lease.name() == OWN_LEASE);
    match own.find_map(|lease| LeaseHolder::of(lease, now)) {
        Some(held) => OperatorPresence::Held(held),
        None => unheld(leases, now).map_or(OperatorPresence::Unknown, |last| {
            OperatorPresence::Vacant(unheld_in_words(last))
        }),
    }
}

/// Why it is doubtful that an operator is active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorDoubtReason {
    /// The reason as a message for the user.
    pub text: String,
    /// Whether no operator holds a Lease. Otherwise, an operator holds one but has not renewed it for a while.
    pub is_absent: bool,
}

/// Why it is doubtful that an operator is active. `None` if an operator has renewed its Lease, or if nothing is known.
pub async fn doubt(cluster: &ClusterConnection, now: Timestamp) -> Option<OperatorDoubtReason> {
    judged(&leases(cluster).await?, now)
}

/// The message of [`doubt`]. `None` if there is no doubt.
pub async fn remark(cluster: &ClusterConnection, now: Timestamp) -> Option<String> {
    doubt(cluster, now).await.map(|doubt| doubt.text)
}

/// The message of [`doubt`] if no process holds the Lease any more. `None` if an operator holds a Lease, or if nothing is
/// known.
pub async fn absence(cluster: &ClusterConnection, now: Timestamp) -> Option<String> {
    doubt(cluster, now).await.filter(|doubt| doubt.is_absent).map(|doubt| doubt.text)
}

/// The remark that no operator has a Lease. Commands print it for objects that no operator has reconciled. An operator without
/// leader election, or in another namespace, has no Lease here either. `None` if a Lease exists, or if Leases cannot be read.
pub async fn unseen(cluster: &ClusterConnection) -> Option<String> {
    leases(cluster).await.and_then(|leases| unseen_in(&leases, &namespace()))
}

/// The remark of [`unseen`] for Leases that were already read. `None` if there is a Lease.
fn unseen_in(leases: &[Object], namespace: &str) -> Option<String> {
    leases.is_empty().then(|| {
        format!(
            "neither windlass nor Flux has a Lease in namespace {namespace}, so it may be that no operator was ever started: \
             `windlass check` shows whether windlass runs"
        )
    })
}

/// The namespace of the Leases.
fn namespace() -> String {
    let namespace = std::env::var(NAMESPACE.0).ok().filter(|it| !it.is_empty());
    namespace.unwrap_or_else(|| NAMESPACE.1.to_owned())
}

/// The Leases of operators that apply objects. `None` if one of them cannot be read.
async fn leases(cluster: &ClusterConnection) -> Option<Vec<Object>> {
    let namespace = namespace();
    let resource = lease_resource(cluster).await.ok()??;
    let reads = LEASES.map(|name| cluster.get(&resource, &namespace, name));
    let leases = futures::future::join_all(reads).await;
    // An operator may hold a Lease that cannot be read.
    let leases: Vec<Option<Object>> = leases.into_iter().collect::<Result<_, _>>().ok()?;
    Some(leases.into_iter().flatten().collect())
}

/// Prints a warning if it is doubtful that an operator is active.
pub async fn say_doubt(cluster: &ClusterConnection) {
    if let Some(doubt) = doubt(cluster, Timestamp::now()).await {
        say(ProgressGlyph::Warning, &doubt.text);
    }
}

/// The Lease that was renewed last, if no process holds any. If one process held several, it is the Lease of windlass, because
/// windlass also holds the Leases of Flux's controllers. `None` if a Lease is held, or if there are no Leases.
fn unheld(leases: &[Object], now: Timestamp) -> Option<&Object> {
    if leases.iter().any(|lease| holder(lease, now).is_some()) {
        return None;
    }
    let last = leases.iter().max_by_key(|it| renewed(it))?;
    let is_of_same_process = |own: &&Object| {
        let apart = renewed(last).zip(renewed(own)).map(|(last, own)| last.duration_since(own));
        identity(own) == identity(last) && apart.is_some_and(|apart| apart <= MOST_APART)
    };
    let own = leases.iter().filter(|it| it.name() == OWN_LEASE).find(is_of_same_process);
    Some(own.unwrap_or(last))
}

/// The message that no process holds a Lease, with the operators that could hold it.
fn unheld_in_words(lease: &Object) -> String {
    let words = lease_in_words(lease);
    match controller_of_lease(lease.name(), &REPLACED_CONTROLLERS) {
        Some(controller) => {
            format!("neither windlass nor Flux's {controller} holds Lease {words}")
        }
        None => format!("no operator holds Lease {words}"),
    }
}

/// A Lease, and since when no process holds it, as text.
pub(super) fn lease_in_words(lease: &Object) -> String {
    let since = renewed(lease).map(|at| format!(" since {at:.0}")).unwrap_or_default();
    format!("{}/{}{since}", lease.namespace(), lease.name())
}

/// The reason of [`doubt`] for Leases that were already read. `None` if a Lease was renewed in time, or if there are no Leases.
fn judged(leases: &[Object], now: Timestamp) -> Option<OperatorDoubtReason> {
    let check = "`windlass check` shows whether windlass runs";
    if let Some(last) = unheld(leases, now) {
        let text = format!("{}, so statuses may be old: {check}", unheld_in_words(last));
        return Some(OperatorDoubtReason { text, is_absent: true });
    }
    let held = leases.iter().filter_map(|lease| LeaseHolder::of(lease, now));
    let last = held.max_by_key(|holder| holder.renewed)?;
    (now.duration_since(last.renewed) > LATE_RENEWAL).then(|| {
        let text = format!(
            "{last} and should have renewed it since ({}), so statuses may be old: {check}",
            last.term()
        );
        OperatorDoubtReason { text, is_absent: false }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fake_cluster::operator_objects;

    fn lease(name: &str, holder: &str, renewed: &str) -> Object {
        Object::new(operator_objects::lease(name, holder, renewed)).unwrap()
    }

    #[test]
    fn a_windlass_that_went_is_missed_by_its_own_lease_and_not_by_that_of_flux_which_it_held_too() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let own = |renewed: &str| lease("windlass-leader-election", "laptop", renewed);
        let also = lease("helm-controller-leader-election", "laptop", "2026-11-24T11:00:00.5Z");
        let text = judged(&[own("2026-11-24T11:00:00Z"), also.clone()], now).unwrap().text;
        assert!(text.contains("Lease flux-system/windlass-leader-election since"), "{text}");
        // Flux was removed long after windlass.
        let text = judged(&[own("2026-11-24T10:00:00Z"), also], now).unwrap().text;
        assert!(text.starts_with("neither windlass nor Flux's helm-controller holds"), "{text}");
    }

    #[test]
    fn an_operator_is_missed_only_where_its_leases_are_there_and_have_no_holder() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let live = lease("windlass-leader-election", "windlass-1", "2026-11-24T11:59:50.123456Z");
        let old = lease("kustomize-controller-leader-election", "flux-1", "2026-11-24T10:00:00Z");
        let released = lease("windlass-leader-election", "", "2026-11-24T11:59:59Z");
        assert_eq!(judged(&[], now), None);
        assert_eq!(judged(&[old.clone(), live.clone()], now), None);
        let holder = LeaseHolder::of(&live, now).unwrap();
        assert_eq!(presence_of(&[old.clone(), live], now), OperatorPresence::Held(holder));
        let flux = lease("helm-controller-leader-election", "flux-1", "2026-11-24T11:59:50Z");
        assert_eq!(presence_of(&[old.clone(), flux], now), OperatorPresence::Unknown);
        assert_eq!(presence_of(&[], now), OperatorPresence::Unknown);
        let vacant = "neither windlass nor Flux's kustomize-controller holds Lease \
                      flux-system/kustomize-controller-leader-election since 2026-11-24T10:00:00Z";
        let vacant = OperatorPresence::Vacant(vacant.to_owned());
        assert_eq!(presence_of(std::slice::from_ref(&old), now), vacant);
        let OperatorDoubtReason { text, is_absent } = judged(&[old, released], now).unwrap();
        assert!(
            text.starts_with(
                "no operator holds Lease flux-system/windlass-leader-election since 2026-11-24T11:59:59Z"
            ),
            "{text}"
        );
        assert!(is_absent);
    }

    #[test]
    fn a_cluster_without_leases_does_not_tell_that_an_operator_runs() {
        let text = "neither windlass nor Flux has a Lease in namespace gitops, so it may be that no operator was ever started: \
                    `windlass check` shows whether windlass runs";
        assert_eq!(unseen_in(&[], "gitops").as_deref(), Some(text));
        let old = lease("windlass-leader-election", "windlass-1", "2026-11-24T11:00:00Z");
        assert_eq!(unseen_in(&[old], "gitops"), None, "it is said since when it is not held");
    }

    #[test]
    fn a_lease_of_a_process_that_was_killed_counts_until_it_runs_out_and_its_age_is_printed() {
        let now = "2026-11-24T12:00:00Z".parse().unwrap();
        let killed = lease("windlass-leader-election", "windlass-1", "2026-11-24T11:59:40Z");
        let text = "'windlass-1' holds Lease flux-system/windlass-leader-election and should have renewed it since (renewed at \
                    2026-11-24T11:59:40Z, counts until 2026-11-24T12:00:15Z), so statuses may be old: `windlass check` shows \
                    whether windlass runs";
        let expected = OperatorDoubtReason { text: text.to_owned(), is_absent: false };
        assert_eq!(judged(std::slice::from_ref(&killed), now), Some(expected));
        // Another operator has renewed its own Lease.
        let live = lease("helm-controller-leader-election", "flux-1", "2026-11-24T11:59:57Z");
        assert_eq!(judged(&[killed, live], now), None);
    }
}
