//! Flags of Flux's controllers that have no effect in windlass.
//!
//! They are accepted and checked, so that a Deployment can keep its arguments when it switches to windlass. Each used one is
//! logged once at the start, with the reason. A flag about security or results is refused if its value differs from Flux's
//! default, since windlass would not keep its promise. A flag that gets an effect moves to [`super::OperatorSettings`].

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use helm::chart::MAX_FILE_SIZE;
use sources::charts::{MAX_CHART, MAX_INDEX};

/// The kind of value that a flag takes.
#[derive(Debug, Clone, Copy)]
enum FlagValueKind {
    Bool,
    Number,
    Decimal,
    Duration,
    Text,
    Selector,
    /// A limit in bytes. Values between Flux's default and windlass's own limit have no effect.
    Bound(u64),
    OneOf(&'static [&'static str]),
}

struct CompatibilityFlag {
    name: &'static str,
    takes: FlagValueKind,
    /// The default value in Flux.
    default: &'static str,
    /// The reason why the flag has no effect, or cannot have one.
    why: &'static str,
    /// Whether a value other than the default is refused.
    is_refused: bool,
}

const fn flag(
    name: &'static str,
    takes: FlagValueKind,
    default: &'static str,
    why: &'static str,
) -> CompatibilityFlag {
    CompatibilityFlag { name, takes, default, why, is_refused: false }
}

/// A flag about security or results.
const fn strict(
    name: &'static str,
    takes: FlagValueKind,
    default: &'static str,
    why: &'static str,
) -> CompatibilityFlag {
    CompatibilityFlag { name, takes, default, why, is_refused: true }
}

const BOUNDED: &str = "requests are limited by API Priority and Fairness";
const NO_CACHE: &str = "each index is cached once in memory in a compact form";
const FIXED: &str = "the limits for charts and indexes are fixed";
const NO_OOM: &str =
    "the memory of each reconciliation is limited, and interrupted ones continue after a restart";
const NO_DATABASE: &str = "the tags of images are stored in files without a database";
const NO_TOKENS: &str = "registry logins are shared and cached for 80% of their lifetime";
const NO_SOPS: &str =
    "identities of clouds are not used for decryption yet; spec.decryption.secretRef is";
const SSH: &str = "the allowed algorithms are fixed";
const DIGESTS: [&str; 5] = ["sha256", "sha1", "sha384", "sha512", "blake3"];

/// The flags of all controllers of Flux 2.9.
const FLAGS: &[CompatibilityFlag] = &[
    strict(
        "artifact-digest-algo",
        FlagValueKind::OneOf(&DIGESTS),
        "sha256",
        "artifact digests are SHA-256",
    ),
    strict("default-decryption-service-account", FlagValueKind::Text, "", NO_SOPS),
    flag(
        "export-http-path-metrics",
        FlagValueKind::Bool,
        "false",
        "metrics of webhooks never have the path, which is a secret",
    ),
    flag("gc-interval", FlagValueKind::Number, "10", NO_DATABASE),
    flag(
        "graceful-shutdown-timeout",
        FlagValueKind::Duration,
        "600s",
        "interrupted reconciliations continue after a restart",
    ),
    flag("helm-cache-max-size", FlagValueKind::Number, "0", NO_CACHE),
    flag("helm-cache-purge-interval", FlagValueKind::Duration, "1m", NO_CACHE),
    flag("helm-cache-ttl", FlagValueKind::Duration, "15m", NO_CACHE),
    strict("helm-chart-file-max-size", FlagValueKind::Bound(MAX_FILE_SIZE), "5242880", FIXED),
    strict("helm-chart-max-size", FlagValueKind::Bound(MAX_CHART), "10485760", FIXED),
    strict("helm-index-max-size", FlagValueKind::Bound(MAX_INDEX), "52428800", FIXED),
    flag("http-retry", FlagValueKind::Number, "9", "failed fetches are retried with backoff"),
    strict(
        "insecure-allow-http",
        FlagValueKind::Bool,
        "true",
        "plain HTTP cannot be disabled; no controller of Flux 2.9 does so either",
    ),
    flag("kube-api-burst", FlagValueKind::Number, "300", BOUNDED),
    flag("kube-api-qps", FlagValueKind::Decimal, "50", BOUNDED),
    flag("oom-watch-current-memory-path", FlagValueKind::Text, "", NO_OOM),
    flag("oom-watch-interval", FlagValueKind::Duration, "500ms", NO_OOM),
    flag("oom-watch-max-memory-path", FlagValueKind::Text, "", NO_OOM),
    flag("oom-watch-memory-threshold", FlagValueKind::Number, "95", NO_OOM),
    flag(
        "reconciliation-timeout",
        FlagValueKind::Duration,
        "10m",
        "ArtifactGenerators are bounded by steps and bytes instead",
    ),
    strict(
        "snapshot-digest-algo",
        FlagValueKind::OneOf(&DIGESTS),
        "sha256",
        "snapshot digests are SHA-256",
    ),
    strict("sops-vault-configmap", FlagValueKind::Text, "", NO_SOPS),
    strict("ssh-hostkey-algos", FlagValueKind::Text, "", SSH),
    strict("ssh-kex-algos", FlagValueKind::Text, "", SSH),
    flag("storage-compression-threshold", FlagValueKind::Number, "65536", NO_DATABASE),
    flag("storage-value-log-file-size", FlagValueKind::Number, "268435456", NO_DATABASE),
    flag("token-cache-max-duration", FlagValueKind::Duration, "1h", NO_TOKENS),
    flag("token-cache-max-size", FlagValueKind::Number, "100", NO_TOKENS),
    flag(
        "watch-configs-label-selector",
        FlagValueKind::Selector,
        "reconcile.fluxcd.io/watch=Enabled",
        "referenced Secrets and ConfigMaps are watched regardless of their labels",
    ),
];

/// Whether a flag has no effect with any accepted value.
pub fn is_without_effect(name: &str) -> bool {
    FLAGS.iter().any(|flag| flag.name == name)
}

/// The flags that were used.
#[derive(Debug, Clone, Default)]
pub(super) struct CompatibilityFlags(Vec<(String, &'static str)>);

impl CompatibilityFlags {
    /// Each used flag whose value differs from Flux's default, with the reason why it has no effect.
    pub(super) fn notes(&self) -> impl Iterator<Item = (&str, &'static str)> {
        self.0.iter().map(|(flag, why)| (&**flag, *why))
    }
}

impl CompatibilityFlag {
    fn argument(&self) -> Arg {
        let arg = Arg::new(self.name)
            .long(self.name)
            .help(match self.is_refused {
                true => format!("Only Flux's default is supported: {}", self.why),
                false => format!("No effect: {}", self.why),
            })
            .help_heading("Flags of Flux's controllers, accepted for compatibility")
            .num_args(1);
        let Self { takes, default, why, is_refused, .. } = *self;
        let arg = arg.value_parser(move |text: &str| {
            takes.check(text)?;
            if is_refused && !takes.is_kept(text, default) {
                return Err(format!("{why}; remove the flag"));
            }
            Ok(text.to_owned())
        });
        match self.takes {
            FlagValueKind::Bool => {
                arg.num_args(0..=1).default_missing_value("true").value_name("BOOL")
            }
            FlagValueKind::Number | FlagValueKind::Decimal | FlagValueKind::Bound(_) => {
                arg.value_name("NUMBER")
            }
            FlagValueKind::Duration => arg.value_name("DURATION"),
            FlagValueKind::Text | FlagValueKind::OneOf(_) => arg.value_name("TEXT"),
            FlagValueKind::Selector => arg.value_name("SELECTOR"),
        }
    }
}

impl FlagValueKind {
    /// Whether two values mean the same.
    fn is_same(self, text: &str, other: &str) -> bool {
        match self {
            Self::Bool => super::parse_bool(text) == super::parse_bool(other),
            Self::Number | Self::Bound(_) => text.parse::<i64>() == other.parse::<i64>(),
            Self::Decimal | Self::Duration | Self::Text | Self::Selector | Self::OneOf(_) => {
                text == other
            }
        }
    }

    /// Whether windlass does what a value asks for. `default` is Flux's default.
    fn is_kept(self, text: &str, default: &str) -> bool {
        let bytes = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
        match self {
            Self::Bound(most) => (bytes(default)..=most).contains(&bytes(text)),
            _ => self.is_same(text, default),
        }
    }

    fn check(self, text: &str) -> Result<(), String> {
        let number = || format!("`{text}` is not a number");
        match self {
            Self::Bool => super::parse_bool(text).map(drop),
            Self::Number | Self::Bound(_) => text.parse::<i64>().map(drop).map_err(|_| number()),
            Self::Decimal => text.parse::<f64>().map(drop).map_err(|_| number()),
            Self::Duration => super::parse_duration(text).map(drop),
            Self::Text => Ok(()),
            Self::Selector => super::LabelSelector::parse(text).map(drop),
            Self::OneOf(names) if names.contains(&text) => Ok(()),
            Self::OneOf(names) => Err(format!("`{text}` is none of {}", names.join(", "))),
        }
    }
}

impl Args for CompatibilityFlags {
    fn augment_args(command: Command) -> Command {
        FLAGS.iter().fold(command, |command, flag| command.arg(flag.argument()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for CompatibilityFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let used = FLAGS.iter().filter_map(|flag| {
            let value = matches.get_one::<String>(flag.name)?;
            (!flag.takes.is_same(value, flag.default))
                .then(|| (format!("--{}={value}", flag.name), flag.why))
        });
        Ok(Self(used.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
