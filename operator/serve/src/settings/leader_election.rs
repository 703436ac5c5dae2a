//! The flags of the leader election.
//!
//! Elsewhere: the elections that these flags require (`windlass_kinds::lease_elections`).

use std::time::Duration;

use clap::Args;
use sha2::{Digest as _, Sha256};

use super::{OperatorSettings, parse_bool, parse_duration};

/// How a leader is elected.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderElectionFlags {
    /// Enable leader election by a Lease; required for more than one replica
    #[arg(long, default_value = "false", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub enable_leader_election: bool,

    /// How long a standby waits after the last observed renewal before it acquires the Lease
    #[arg(long, default_value = "35s", value_parser = parse_duration)]
    pub leader_election_lease_duration: Duration,

    /// How long a leader retries to renew the Lease before it stops acting and exits
    #[arg(long, default_value = "30s", value_parser = parse_duration)]
    pub leader_election_renew_deadline: Duration,

    /// How often to renew or check the Lease
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    pub leader_election_retry_period: Duration,

    /// Release the Lease on shutdown, so that a standby can take over at once
    #[arg(long, default_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub leader_election_release_on_cancel: bool,

    /// Namespace of the Lease; by default that of windlass
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_election_namespace: Option<String>,

    /// Do not act while a controller of Flux does that windlass replaces, which the notification-controller is
    /// without --events-addr only: with leader election their Leases are acquired, too; without, windlass waits until no
    /// process holds them. Without effect with --watch-label-selector
    #[arg(long, default_value = "true", value_name = "BOOL", action = clap::ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", value_parser = parse_bool)]
    pub exclude_flux: bool,

    /// Namespace of the controllers of Flux, and of their Leases; by default that of windlass
    #[arg(long, value_name = "NAMESPACE")]
    pub flux_namespace: Option<String>,

    /// Identity of this process, unique among the replicas and stable across restarts; by default `$HOSTNAME`, which is
    /// the name of the Pod
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    leader_election_identity: Option<String>,
}

/// The name of the Lease, to which shards add a suffix.
const NAME: &str = "windlass-leader-election";

impl OperatorSettings {
    /// The name of this process for the API server and for other processes.
    pub fn identity(&self) -> String {
        let given = self.leader_election.leader_election_identity.clone();
        given
            .filter(|name| !name.is_empty())
            .or_else(|| std::env::var("HOSTNAME").ok())
            .unwrap_or_else(|| "windlass".to_owned())
    }
}

/// The name of the Lease for the processes with this label selector. Every shard elects its own leader.
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
    use super::*;

    #[test]
    fn every_shard_has_its_own_lease() {
        assert_eq!(lease_name(""), "windlass-leader-election");
        assert_eq!(
            lease_name("sharding.fluxcd.io/key=shard1"),
            "windlass-leader-election-73fdc1be"
        );
    }
}
