//! Feature gates of Flux's controllers.
//!
//! A gate works as in Flux, or asks for what windlass always does, or is refused at the start with advice. An unknown gate is
//! an error, as in Flux. A gate with Flux's default is never refused.

use FeatureGateSupport::{Always, Refused, Works};

/// The gates in one use of the flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FeatureGateFlag(Vec<FeatureGateSetting>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FeatureGateSetting {
    known: &'static FeatureGate,
    on: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct FeatureGate {
    name: &'static str,
    default: bool,
    here: FeatureGateSupport,
}

/// What windlass does with a gate whose value is not Flux's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeatureGateSupport {
    /// The gate works as in Flux.
    Works,
    /// windlass always does what the gate asks for. The text says why it has no effect.
    Always(&'static str),
    /// windlass would ignore the gate, so the process does not start. The text says what to do or expect.
    Refused(&'static str),
}

const fn gate(name: &'static str, default: bool, here: FeatureGateSupport) -> FeatureGate {
    FeatureGate { name, default, here }
}

/// The gate that makes `readyExpr` an addition to the usual check, and not a replacement.
pub(super) const ADDITIVE_CEL: &str = "AdditiveCELDependencyCheck";

/// The gate that lets templates resolve host names by DNS.
pub(super) const DNS_LOOKUPS: &str = "AllowDNSLookups";

/// The gate that makes a wait for health continue although an object has failed for good.
pub(super) const NO_FAIL_FAST: &str = "DisableFailFastBehavior";

/// The gate that keeps the digest of the artifact out of a chart's version.
pub(super) const NO_CHART_DIGEST: &str = "DisableChartDigestTracking";

/// The gate that makes releases without a strategy retry failed actions.
pub(super) const RETRY_ON_FAILURE: &str = "DefaultToRetryOnFailure";

/// The gate that gives releases the defaults of Helm 3.
pub(super) const HELM3_DEFAULTS: &str = "UseHelm3Defaults";

/// The gate that adds commits to the push branch if it exists.
pub(super) const ALL_BRANCH_REFERENCES: &str = "GitAllBranchReferences";

/// The gate that overwrites a push branch that is not an ancestor of the new commit.
pub(super) const FORCE_PUSH_BRANCH: &str = "GitForcePushBranch";

const DEAD: FeatureGateSupport = Always("it has no effect in Flux either");
const NO_IDENTITY: &str = "object-level workload identity is not supported yet; use a Secret, or the workload \
                           identity of windlass's Pod";

/// The feature gates of all controllers of Flux 2.9.
const KNOWN: &[FeatureGate] = &[
    gate(ADDITIVE_CEL, false, Works),
    gate("AdoptLegacyReleases", false, DEAD),
    gate(DNS_LOOKUPS, false, Works),
    gate(
        "CacheSecretsAndConfigMaps",
        false,
        Refused("Secrets and ConfigMaps are never cached; remove the gate"),
    ),
    gate(
        "CancelHealthCheckOnNewRevision",
        false,
        Always("a new revision always cancels health checks"),
    ),
    gate("CorrectDrift", false, DEAD),
    gate(RETRY_ON_FAILURE, false, Works),
    gate("DetectDrift", false, DEAD),
    gate(
        "DirectSourceFetch",
        false,
        Refused("sources are always read from a watch; remove the gate"),
    ),
    gate(NO_CHART_DIGEST, false, Works),
    gate(
        "DisableConfigWatchers",
        false,
        Refused("referenced Secrets and ConfigMaps are always watched; remove the gate"),
    ),
    gate(NO_FAIL_FAST, false, Works),
    gate("DisableStatusPollerCache", true, Always("health is watched instead of polled")),
    gate("ExternalArtifact", false, Always("ExternalArtifacts are always supported as sources")),
    gate(
        "FluxStorage",
        false,
        Refused("revisions of ImageRepositories are checksums, not digests; remove the gate"),
    ),
    gate(ALL_BRANCH_REFERENCES, true, Works),
    gate(FORCE_PUSH_BRANCH, true, Works),
    gate("GitShallowClone", true, Always("commits need no history of what they build on")),
    gate("GitSparseCheckout", false, Always("only files with markers are updated")),
    gate(
        "GroupChangeLog",
        false,
        Refused("each changed object is logged separately; remove the gate"),
    ),
    gate(
        "MigrateAPIVersion",
        false,
        Refused("apiVersions in managedFields are not migrated; remove the gate"),
    ),
    gate(
        "OOMWatch",
        false,
        Refused(
            "memory is not watched: interrupted reconciliations continue after a restart; remove the gate",
        ),
    ),
    gate("ObjectLevelWorkloadIdentity", false, Refused(NO_IDENTITY)),
    gate("StrictPostBuildSubstitutions", true, Works),
    gate(HELM3_DEFAULTS, false, Works),
];

/// Every gate with its default in Flux.
#[cfg(test)]
pub(super) fn known() -> impl Iterator<Item = (&'static str, bool)> {
    KNOWN.iter().map(|known| (known.name, known.default))
}

impl FeatureGateFlag {
    /// Parses gates such as `Name=true,Other=false`.
    ///
    /// # Errors
    /// Names a text that is no gate, has no value, or asks for something that is not supported.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(FeatureGateSetting::parse).collect::<Result<_, _>>().map(Self)
    }

    /// The value of a gate, if it is set.
    pub(super) fn value(&self, name: &str) -> Option<bool> {
        self.0.iter().rev().find(|gate| gate.known.name == name).map(|gate| gate.on)
    }

    /// Whether no gate is set.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each gate whose value differs from Flux's default but asks for what windlass always does, with the reason.
    pub(super) fn notes(&self) -> impl Iterator<Item = (String, &'static str)> {
        self.0.iter().filter(|gate| gate.on != gate.known.default).filter_map(|gate| {
            let FeatureGateSetting { known, on } = gate;
            let Always(why) = known.here else { return None };
            Some((format!("--feature-gates={}={on}", known.name), why))
        })
    }
}

impl FeatureGateSetting {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, on) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` is not Name=true or Name=false"))?;
        let name = name.trim();
        let known = KNOWN
            .iter()
            .find(|known| known.name == name)
            .ok_or_else(|| format!("unknown feature gate `{name}`"))?;
        let on = super::parse_bool(on.trim())?;
        match known.here {
            Refused(why) if on != known.default => {
                Err(format!("{name}={on} is not supported: {why}"))
            }
            Works | Always(_) | Refused(_) => Ok(Self { known, on }),
        }
    }
}
