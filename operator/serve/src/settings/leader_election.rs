//! Flags of the leader election.

use std::time::Duration;

use clap::Args;
use sha2::{Digest as _, Sha256};

use super::{OperatorSettings, parse_bool, parse_duration};
use windlass_cluster::election::{RequiredLeaseElections, replaced};
use windlass_cluster::lease::ElectionSettings;

/// How a leader is elected.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderElection {
    /// Enable leader election by a Lease; required for more than one replica
    #[arg(long, default_value = "false", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    enable_leader_election: bool,

    /// How long a standby waits after the last observed renewal before it acquires the Lease
    #[arg(long, default_value = "35s", value_parser = parse_duration)]
    leader_election_lease_duration: Duration,

    /// How long a leader retries to renew the Lease before it stops acting and exits
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    leader_election_renew_deadline: Duration,

    /// How often to renew or check the Lease
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    leader_election_retry_period: Duration,

    /// Release the Lease on shutdown, so that a standby can take over at once
    #[arg(long, default_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub leader_election_release_on_cancel: bool,

    /// Namespace of the Lease; by default that of windlass
    #[arg(long, value_name = "NAMESPACE")]
    leader_election_namespace: Option<String>,

    /// Do not act while a controller of Flux does that windlass replaces, which the notification-controller is
    /// without --events-addr only: with leader election their Leases are acquired, too; without, windlass waits until no
    /// process holds them. Without effect with --watch-label-selector
    #[arg(long, default_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    exclude_flux: bool,

    /// Namespace of the controllers of Flux, and of their Leases; by default that of windlass
    #[arg(long, value_name = "NAMESPACE")]
    flux_namespace: Option<String>,

    /// Identity of this process, unique among the replicas and stable across restarts; by default `$HOSTNAME`, which is
    /// the name of the Pod
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    leader_election_identity: Option<String>,
}

/// Base of the Lease's name.
const NAME: &str = "windlass-leader-election";

impl OperatorSettings {
    /// The name of this process for the API server and other processes.
    pub fn identity(&self) -> String {
        let given = self.leader_election.leader_election_identity.clone();
        given
            .filter(|name| !name.is_empty())
            .or_else(|| std::env::var("HOSTNAME").ok())
            .unwrap_or_else(|| "windlass".to_owned())
    }

    /// The elections that this process has to win before it may act.
    ///
    /// # Errors
    /// The durations leave no time to step down before another process takes over.
    pub fn terms(&self) -> anyhow::Result<RequiredLeaseElections> {
        let flags = &self.leader_election;
        let selector = self.watch_label_selector.text();
        // A Lease counts whole seconds.
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
            given.clone().unwrap_or_else(|| self.runtime_namespace.clone())
        };
        let own = ElectionSettings {
            namespace: namespace(&flags.leader_election_namespace),
            name: lease_name(selector),
            identity: self.identity(),
            duration,
            renew_deadline: deadline,
            retry,
        };
        // Objects that are divided by a selector may be divided between windlass and Flux, too.
        let excludes = flags.exclude_flux && selector.is_empty();
        let flux = ElectionSettings { namespace: namespace(&flags.flux_namespace), ..own.clone() };
        Ok(RequiredLeaseElections {
            own: flags.enable_leader_election.then_some(own),
            flux: excludes.then_some(flux),
            replaced: replaced(self.notifies()),
        })
    }
}

/// The Lease of the processes with a selector: every shard elects a leader of its own.
///
/// Parity(flux): the suffix is the beginning of the selector's hash, as Flux's controllers have it.
pub fn lease_name(selector: &str) -> String {
    if selector.is_empty() {
        return NAME.to_owned();
    }
    let hash = hex::encode(Sha256::digest(selector));
    let beginning: String = hash.chars().take(8).collect();
    format!("{NAME}-{beginning}")
}

#[cfg(test)]
mod tests {
    use super::super::tests::settings;
    use super::*;

    #[test]
    fn every_shard_has_its_own_lease() {
        assert_eq!(lease_name(""), "windlass-leader-election");
        assert_eq!(
            lease_name("sharding.fluxcd.io/key=shard1"),
            "windlass-leader-election-73fdc1be"
        );
    }

    #[test]
    fn flux_is_excluded_in_its_namespace_unless_the_objects_are_divided() {
        let namespace = |flags: &[&str]| {
            settings(flags).terms().unwrap().flux.map(|election| election.namespace)
        };
        assert_eq!(namespace(&[]).as_deref(), Some("flux-system"));
        assert_eq!(namespace(&["--runtime-namespace=a"]).as_deref(), Some("a"));
        assert_eq!(namespace(&["--flux-namespace=b"]).as_deref(), Some("b"));
        assert_eq!(namespace(&["--exclude-flux=false"]), None);
        assert_eq!(namespace(&["--watch-label-selector=operator=windlass"]), None);
    }

    #[test]
    fn the_notification_controller_is_excluded_unless_events_are_posted_to_it() {
        let count = |flags: &[&str]| settings(flags).terms().unwrap().replaced.len();
        assert_eq!(count(&[]), 7);
        assert_eq!(count(&["--events-addr=http://notification-controller/"]), 6);
    }

    #[test]
    fn a_leader_has_to_stop_before_another_begins() {
        assert!(settings(&[]).terms().unwrap().own.is_none());
        let election = settings(&["--enable-leader-election"]).terms().unwrap().own.unwrap();
        assert_eq!(election.renew_deadline, Duration::from_secs(30));
        for (flag, complaint) in [
            ("--leader-election-lease-duration=30s", "lease-duration"),
            ("--leader-election-lease-duration=30.9s", "lease-duration"),
            ("--leader-election-retry-period=25s", "1.2 times"),
            ("--leader-election-retry-period=0s", "1.2 times"),
        ] {
            let error = settings(&["--enable-leader-election", flag]).terms().unwrap_err();
            assert!(error.to_string().contains(complaint), "{error}");
        }
    }
}
