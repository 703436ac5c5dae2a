//! The flags of `helm template` that have no effect there, and the flags that would need a cluster or a remote server.
//!
//! Elsewhere: all other flags (`flags.rs`).

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use golang::strconv::parse_bool;

/// Flags without effect that need no value.
const SWITCHES: [&str; 20] = [
    "atomic",
    "create-namespace",
    "devel",
    "disable-openapi-validation",
    "force",
    "force-conflicts",
    "force-replace",
    "hide-notes",
    "insecure-skip-tls-verify",
    "kube-insecure-skip-tls-verify",
    "pass-credentials",
    "plain-http",
    "render-subchart-notes",
    "replace",
    "rollback-on-failure",
    "server-side",
    "skip-crds",
    "take-ownership",
    "wait",
    "wait-for-jobs",
];

/// Flags without effect that require a value.
const VALUES: [&str; 23] = [
    "burst-limit",
    "ca-file",
    "cert-file",
    "color",
    "colour",
    "content-cache",
    "description",
    "key-file",
    "keyring",
    "kube-apiserver",
    "kube-as-group",
    "kube-as-user",
    "kube-ca-file",
    "kube-tls-server-name",
    "kube-token",
    "labels",
    "password",
    "qps",
    "registry-config",
    "repository-cache",
    "repository-config",
    "timeout",
    "username",
];

/// Flags that are refused, each with advice. The boolean says whether the flag needs no value.
const REFUSED: [(&str, bool, &str); 5] = [
    ("validate", true, "it requires a cluster"),
    ("verify", true, "verify the archive before rendering"),
    ("dependency-update", true, "put dependencies into charts/"),
    ("repo", false, "download the chart first and use its directory or archive"),
    ("post-renderer", false, "pipe the output to the program"),
];

/// Flags that Helm calls deprecated, with Helm's reason.
const DEPRECATED: [(&str, &str); 5] = [
    ("atomic", "use --rollback-on-failure instead"),
    ("force", "use --force-replace instead"),
    ("hide-notes", "this flag has no effect for 'helm template' and will be removed in Helm 5"),
    (
        "render-subchart-notes",
        "this flag has no effect for 'helm template' and will be removed in Helm 5",
    ),
    ("validate", "use '--dry-run=server' instead"),
];

/// The result of parsing these flags.
#[derive(Debug, Clone, Default)]
pub(super) struct IgnoredFlagsReport {
    /// The messages that Helm prints first, one per line.
    pub(super) notices: Vec<String>,
    /// Why the command refuses to run.
    pub(super) refusal: Option<String>,
}

fn switch(name: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .hide(true)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
}

fn value(name: &'static str) -> Arg {
    let value = Arg::new(name).long(name).hide(true).allow_hyphen_values(true);
    let value = value.action(ArgAction::Append);
    if name == "labels" { value.short('l') } else { value }
}

impl Args for IgnoredFlagsReport {
    fn augment_args(command: Command) -> Command {
        let refused =
            REFUSED.map(|(name, is_switch, _)| if is_switch { switch(name) } else { value(name) });
        command.args(SWITCHES.map(switch)).args(VALUES.map(value)).args(refused)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for IgnoredFlagsReport {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |name: &str| matches.get_one::<String>(name);
        let deprecated = DEPRECATED.iter().filter(|(name, _)| given(name).is_some());
        let notices =
            deprecated.map(|(name, why)| format!("Flag --{name} has been deprecated, {why}"));
        let is_on = |name: &str, is_switch: bool| {
            given(name).is_some_and(|text| match is_switch {
                true => parse_bool(text).unwrap_or(true),
                false => !text.is_empty(),
            })
        };
        let refused = REFUSED.iter().find(|(name, is_switch, _)| is_on(name, *is_switch));
        let refusal =
            refused.map(|(name, _, instead)| format!("`--{name}` is not supported: {instead}"));
        Ok(Self { notices: notices.collect(), refusal })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
