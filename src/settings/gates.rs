//! Feature gates of Flux's controllers.
//!
//! Each is accepted, so that a set of flags that works there works here; one that nobody knows is an error, as there.
//! Most of them change nothing; one of those that is set to another value than Flux's default is told about.

/// Gates as one use of the flag sets them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gates(Vec<Gate>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Gate {
    known: &'static Known,
    on: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Known {
    name: &'static str,
    default: bool,
    here: &'static str,
}

const fn gate(name: &'static str, default: bool, here: &'static str) -> Known {
    Known { name, default, here }
}

/// Stands with a gate that does here what it does in Flux.
const WORKS: &str = "";

/// The gate by which `readyExpr` is asked beside the usual check, instead of in its place.
pub(super) const ADDITIVE_CEL: &str = "AdditiveCELDependencyCheck";

/// The gate by which templates may ask for addresses of hosts.
pub(super) const DNS_LOOKUPS: &str = "AllowDNSLookups";

/// The gate by which a chart's version does not tell of the digest of its artifact.
pub(super) const NO_CHART_DIGEST: &str = "DisableChartDigestTracking";

/// The gate by which actions of releases without a strategy are retried.
pub(super) const RETRY_ON_FAILURE: &str = "DefaultToRetryOnFailure";

/// The gate by which releases have the defaults of Helm 3.
pub(super) const HELM3_DEFAULTS: &str = "UseHelm3Defaults";

const NOT_YET: &str = "what it is about is not supported yet";

/// Flux 2.9, all controllers.
const KNOWN: &[Known] = &[
    gate(ADDITIVE_CEL, false, WORKS),
    gate("AdoptLegacyReleases", false, "it is retired in Flux as well"),
    gate(DNS_LOOKUPS, false, WORKS),
    gate("CacheSecretsAndConfigMaps", false, "Secrets are never kept in memory"),
    gate(
        "CancelHealthCheckOnNewRevision",
        false,
        "a new revision always supersedes a wait for health",
    ),
    gate("CorrectDrift", false, "it is retired in Flux as well"),
    gate(RETRY_ON_FAILURE, false, WORKS),
    gate("DetectDrift", false, "it is retired in Flux as well"),
    gate("DirectSourceFetch", false, "sources are read from a watch that sees every change"),
    gate(NO_CHART_DIGEST, false, WORKS),
    gate(
        "DisableConfigWatchers",
        false,
        "Secrets and ConfigMaps that an object names are always watched, and only those",
    ),
    gate(
        "DisableFailFastBehavior",
        false,
        "waits for health hold no worker, so there is nothing to gain",
    ),
    gate("DisableStatusPollerCache", true, "health is watched and not polled"),
    gate("ExternalArtifact", false, NOT_YET),
    gate("FluxStorage", false, NOT_YET),
    gate("GitAllBranchReferences", true, NOT_YET),
    gate("GitForcePushBranch", true, NOT_YET),
    gate("GitShallowClone", true, NOT_YET),
    gate("GitSparseCheckout", false, NOT_YET),
    gate("GroupChangeLog", false, "changes are always logged in groups"),
    gate("MigrateAPIVersion", false, NOT_YET),
    gate("OOMWatch", false, NOT_YET),
    gate("ObjectLevelWorkloadIdentity", false, NOT_YET),
    gate("StrictPostBuildSubstitutions", true, WORKS),
    gate(HELM3_DEFAULTS, false, WORKS),
];

impl Gates {
    /// Reads `Name=true,Other=false`.
    ///
    /// # Errors
    /// Names what is no gate, or has no value.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(Gate::parse).collect::<Result<_, _>>().map(Self)
    }

    /// What a gate is set to, if it is.
    pub(super) fn value(&self, name: &str) -> Option<bool> {
        self.0.iter().rev().find(|gate| gate.known.name == name).map(|gate| gate.on)
    }

    /// Nothing is set.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each gate that asks for something else than Flux's default, and why that changes nothing.
    pub(super) fn notes(&self) -> impl Iterator<Item = (String, &'static str)> {
        let told =
            self.0.iter().filter(|gate| gate.on != gate.known.default && gate.known.here != WORKS);
        told.map(|Gate { known, on }| (format!("--feature-gates={}={on}", known.name), known.here))
    }
}

impl Gate {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, on) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` is not Name=true or Name=false"))?;
        let name = name.trim();
        let known = KNOWN
            .iter()
            .find(|known| known.name == name)
            .ok_or_else(|| format!("no controller of Flux has a feature gate `{name}`"))?;
        Ok(Self { known, on: super::parse_bool(on.trim())? })
    }
}
