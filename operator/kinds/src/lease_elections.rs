//! The leader elections that a process with certain flags has to win before it may write.
//!
//! Elsewhere: the flags (`windlass_serve::settings`), and the elections (`windlass_cluster::election`).

use std::time::Duration;

use windlass_cluster::election::{RequiredLeaseElections, replaced};
use windlass_cluster::lease::ElectionSettings;
use windlass_serve::settings::{OperatorSettings, lease_name};

/// The leader elections that a process with these settings has to win before it may write.
///
/// # Errors
/// The durations leave no time to stop before another process takes over.
pub fn required_lease_elections(
    settings: &OperatorSettings,
) -> anyhow::Result<RequiredLeaseElections> {
    let flags = &settings.leader_election;
    let selector = settings.watch_label_selector.text();
    // A Lease stores its duration in whole seconds.
    let duration = Duration::from_secs(flags.leader_election_lease_duration.as_secs());
    let deadline = flags.leader_election_renew_deadline;
    let retry = flags.leader_election_retry_period;
    anyhow::ensure!(
        duration > deadline,
        "--leader-election-lease-duration ({duration:?}, in whole seconds) must be longer than \
         --leader-election-renew-deadline ({deadline:?})"
    );
    // Parity(client-go): the same factor.
    anyhow::ensure!(
        deadline > retry.mul_f64(1.2) && !retry.is_zero(),
        "--leader-election-renew-deadline ({deadline:?}) must be longer than 1.2 times \
         --leader-election-retry-period ({retry:?})"
    );
    let namespace = |given: &Option<String>| {
        given.clone().unwrap_or_else(|| settings.runtime_namespace.clone())
    };
    let own = ElectionSettings {
        namespace: namespace(&flags.leader_election_namespace),
        name: lease_name(selector),
        identity: settings.identity(),
        duration,
        renew_deadline: deadline,
        retry,
    };
    // With a label selector, windlass and Flux may share the objects between them.
    let excludes = flags.exclude_flux && selector.is_empty();
    let flux = ElectionSettings { namespace: namespace(&flags.flux_namespace), ..own.clone() };
    Ok(RequiredLeaseElections {
        own: flags.enable_leader_election.then_some(own),
        flux: excludes.then_some(flux),
        replaced: replaced(settings.notifies()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn required(flags: &[&str]) -> anyhow::Result<RequiredLeaseElections> {
        required_lease_elections(&OperatorSettings::from_flags(flags).unwrap())
    }

    #[test]
    fn flux_is_excluded_in_its_namespace_unless_the_objects_are_divided() {
        let namespace =
            |flags: &[&str]| required(flags).unwrap().flux.map(|election| election.namespace);
        assert_eq!(namespace(&[]).as_deref(), Some("flux-system"));
        assert_eq!(namespace(&["--runtime-namespace=a"]).as_deref(), Some("a"));
        assert_eq!(namespace(&["--flux-namespace=b"]).as_deref(), Some("b"));
        assert_eq!(namespace(&["--exclude-flux=false"]), None);
        assert_eq!(namespace(&["--watch-label-selector=operator=windlass"]), None);
    }

    #[test]
    fn the_notification_controller_is_excluded_unless_events_are_posted_to_it() {
        let count = |flags: &[&str]| required(flags).unwrap().replaced.len();
        assert_eq!(count(&[]), 7);
        assert_eq!(count(&["--events-addr=http://notification-controller/"]), 6);
    }

    #[test]
    fn a_leader_has_to_stop_before_another_begins() {
        assert!(required(&[]).unwrap().own.is_none());
        let election = required(&["--enable-leader-election"]).unwrap().own.unwrap();
        assert_eq!(election.renew_deadline, Duration::from_secs(30));
        for (flag, complaint) in [
            ("--leader-election-lease-duration=30s", "lease-duration"),
            ("--leader-election-lease-duration=30.9s", "lease-duration"),
            ("--leader-election-retry-period=25s", "1.2 times"),
            ("--leader-election-retry-period=0s", "1.2 times"),
        ] {
            let error = required(&["--enable-leader-election", flag]).unwrap_err();
            assert!(error.to_string().contains(complaint), "{error}");
        }
    }
}
