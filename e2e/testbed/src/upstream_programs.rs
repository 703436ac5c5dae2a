//! The programs whose answers are right by definition: Helm, Kustomize, helmfile, Flux's controllers and command line,
//! and those that encrypt and sign, as their projects release them.
//!
//! Here: which versions, and how they are built. Elsewhere: the building (`binaries`), the Go modules (`testbed/`),
//! asking them (`cargo xtask compare`, `cargo xtask bench template`).

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::binaries::{GO, GoBuildRecipe, MissingSourcePart, ProgramSet, STRIP};

const HELM: ProgramSet = ProgramSet {
    recipes: &[
        GoBuildRecipe {
            name: "helm",
            module: "helm",
            package: "helm.sh/helm/v4/cmd/helm",
            // Charts see the version; without this it is v4.2, which no release calls itself.
            link_flags: "-s -w -X helm.sh/helm/v4/internal/version.version=v4.2.4",
            tags: "",
            lacks: MissingSourcePart::Nothing,
        },
        GoBuildRecipe {
            name: "renders",
            module: "helm",
            package: ".",
            link_flags: STRIP,
            tags: "",
            lacks: MissingSourcePart::Nothing,
        },
    ],
    module_files: &["helm/go.mod", "helm/go.sum", "helm/main.go"],
    advice: GO,
};

const KUSTOMIZE: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe::plain("kustomize", "sigs.k8s.io/kustomize/kustomize/v5")],
    module_files: &["kustomize/go.mod", "kustomize/go.sum"],
    advice: GO,
};

const HELM_3: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe::plain("helm3", "helm.sh/helm/v3/cmd/helm")],
    module_files: &["helm3/go.mod", "helm3/go.sum"],
    advice: GO,
};

const HELMFILE: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe::plain("helmfile", "github.com/helmfile/helmfile")],
    module_files: &["helmfile/go.mod", "helmfile/go.sum"],
    advice: GO,
};

const HELM_CONTROLLER: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe::plain("helm-controller", "github.com/fluxcd/helm-controller")],
    module_files: &["helm-controller/go.mod", "helm-controller/go.sum"],
    advice: GO,
};

const KUSTOMIZE_CONTROLLER: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe::plain(
        "kustomize-controller",
        "github.com/fluxcd/kustomize-controller",
    )],
    module_files: &["kustomize-controller/go.mod", "kustomize-controller/go.sum"],
    advice: GO,
};

const SOURCE_CONTROLLER: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe::plain("source-controller", "github.com/fluxcd/source-controller")],
    module_files: &["source-controller/go.mod", "source-controller/go.sum"],
    advice: GO,
};

const NOTIFICATION_CONTROLLER: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe::plain(
        "notification-controller",
        "github.com/fluxcd/notification-controller",
    )],
    module_files: &["notification-controller/go.mod", "notification-controller/go.sum"],
    advice: GO,
};

const IMAGE_REFLECTOR_CONTROLLER: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe::plain(
        "image-reflector-controller",
        "github.com/fluxcd/image-reflector-controller",
    )],
    module_files: &["image-reflector-controller/go.mod", "image-reflector-controller/go.sum"],
    advice: GO,
};

const IMAGE_AUTOMATION_CONTROLLER: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe::plain(
        "image-automation-controller",
        "github.com/fluxcd/image-automation-controller",
    )],
    module_files: &["image-automation-controller/go.mod", "image-automation-controller/go.sum"],
    advice: GO,
};

const DECRYPTS: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe {
        name: "decrypts",
        module: "kustomize-controller",
        package: "github.com/fluxcd/kustomize-controller/decrypts",
        link_flags: STRIP,
        tags: "",
        lacks: MissingSourcePart::Program("github.com/fluxcd/kustomize-controller"),
    }],
    module_files: &[
        "kustomize-controller/go.mod",
        "kustomize-controller/go.sum",
        "kustomize-controller/decrypts/main.go",
    ],
    advice: GO,
};

const FLUX: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe {
        name: "flux",
        module: "flux",
        package: "github.com/fluxcd/flux2/v2/cmd/flux",
        link_flags: "-s -w -X main.VERSION=2.9.5",
        tags: "",
        // Only `flux install` and `flux bootstrap` need it.
        lacks: MissingSourcePart::File("github.com/fluxcd/flux2/v2/cmd/flux/manifests/none.yaml"),
    }],
    module_files: &["flux/go.mod", "flux/go.sum"],
    advice: GO,
};

/// All that encrypts files: age is what SOPS has most of its keys from.
const SOPS: ProgramSet = ProgramSet {
    recipes: &[
        GoBuildRecipe::plain("sops", "github.com/getsops/sops/v3/cmd/sops"),
        GoBuildRecipe { module: "sops", ..GoBuildRecipe::plain("age", "filippo.io/age/cmd/age") },
        GoBuildRecipe {
            module: "sops",
            ..GoBuildRecipe::plain("age-keygen", "filippo.io/age/cmd/age-keygen")
        },
    ],
    module_files: &["sops/go.mod", "sops/go.sum"],
    advice: GO,
};

const COSIGN: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe::plain("cosign", "github.com/sigstore/cosign/v3/cmd/cosign")],
    module_files: &["cosign/go.mod", "cosign/go.sum"],
    advice: GO,
};

const NOTATION: ProgramSet = ProgramSet {
    recipes: &[GoBuildRecipe::plain("notation", "github.com/notaryproject/notation/cmd/notation")],
    module_files: &["notation/go.mod", "notation/go.sum"],
    advice: GO,
};

/// A program whose answers are right by definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamProgram {
    /// `helm`.
    Helm,
    /// `helm` of the version before, whose releases are taken over.
    Helm3,
    /// `kustomize`.
    Kustomize,
    /// `helmfile`, which runs `helm` and `kustomize`.
    Helmfile,
    /// Flux's controller of HelmReleases, which takes over and is taken over from.
    HelmController,
    /// Flux's controller of Kustomizations, which windlass is measured beside.
    KustomizeController,
    /// Flux's controller of sources, which the other two need.
    SourceController,
    /// Flux's controller of notifications, which windlass is measured beside.
    NotificationController,
    /// Flux's controller of ImageRepositories and ImagePolicies, which windlass is measured beside.
    ImageReflectorController,
    /// Flux's controller of ImageUpdateAutomations, which windlass is measured beside.
    ImageAutomationController,
    /// Flux's command line, which people use with windlass, too.
    Flux,
    /// `sops`, which encrypts files.
    Sops,
    /// `age`, which encrypts for a key.
    Age,
    /// `age-keygen`, which makes keys of age.
    AgeKeygen,
    /// `cosign`, which signs what is in registries.
    Cosign,
    /// `notation`, which signs the same by certificates.
    Notation,
}

impl UpstreamProgram {
    /// What the program is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Helm => "helm",
            Self::Helm3 => "helm3",
            Self::Kustomize => "kustomize",
            Self::Helmfile => "helmfile",
            Self::HelmController => "helm-controller",
            Self::KustomizeController => "kustomize-controller",
            Self::SourceController => "source-controller",
            Self::NotificationController => "notification-controller",
            Self::ImageReflectorController => "image-reflector-controller",
            Self::ImageAutomationController => "image-automation-controller",
            Self::Flux => "flux",
            Self::Sops => "sops",
            Self::Age => "age",
            Self::AgeKeygen => "age-keygen",
            Self::Cosign => "cosign",
            Self::Notation => "notation",
        }
    }

    /// Its name and version, as recorded answers say who gave them.
    pub const fn version(self) -> &'static str {
        match self {
            Self::Helm => "helm v4.2.4",
            Self::Helm3 => "helm v3.22.0",
            Self::Kustomize => "kustomize v5.8.1",
            Self::Helmfile => "helmfile v1.8.0",
            Self::HelmController => "helm-controller v1.6.3",
            Self::KustomizeController => "kustomize-controller v1.9.5",
            Self::SourceController => "source-controller v1.9.3",
            Self::NotificationController => "notification-controller v1.9.3",
            Self::ImageReflectorController => "image-reflector-controller v1.2.4",
            Self::ImageAutomationController => "image-automation-controller v1.2.4",
            Self::Flux => "flux v2.9.5",
            Self::Sops => "sops v3.13.2",
            Self::Age => "age v1.3.1",
            Self::AgeKeygen => "age-keygen v1.3.1",
            Self::Cosign => "cosign v3.0.6",
            Self::Notation => "notation v1.3.2",
        }
    }

    /// Where it is; built if it is not there. Blocks, some minutes the first time, with progress on stderr.
    ///
    /// # Errors
    /// Why it cannot be built: no Go, no network.
    pub fn ensure(self) -> Result<PathBuf> {
        match self {
            Self::Helm => program(&HELM, self.name()),
            Self::Helm3 => program(&HELM_3, self.name()),
            Self::Kustomize => program(&KUSTOMIZE, self.name()),
            Self::Helmfile => program(&HELMFILE, self.name()),
            Self::HelmController => program(&HELM_CONTROLLER, self.name()),
            Self::KustomizeController => program(&KUSTOMIZE_CONTROLLER, self.name()),
            Self::SourceController => program(&SOURCE_CONTROLLER, self.name()),
            Self::NotificationController => program(&NOTIFICATION_CONTROLLER, self.name()),
            Self::ImageReflectorController => program(&IMAGE_REFLECTOR_CONTROLLER, self.name()),
            Self::ImageAutomationController => program(&IMAGE_AUTOMATION_CONTROLLER, self.name()),
            Self::Flux => program(&FLUX, self.name()),
            Self::Sops | Self::Age | Self::AgeKeygen => program(&SOPS, self.name()),
            Self::Cosign => program(&COSIGN, self.name()),
            Self::Notation => program(&NOTATION, self.name()),
        }
    }
}

/// A program that renders a chart many times in one process: `renders CHART TIMES` prints the seconds of each time.
///
/// # Errors
/// As [`UpstreamProgram::ensure`].
pub fn renders() -> Result<PathBuf> {
    program(&HELM, "renders")
}

/// A program that decrypts Secrets many times with the decryptor of the kustomize-controller, and makes them before: its
/// sources have the details.
///
/// # Errors
/// As [`UpstreamProgram::ensure`].
pub fn decrypts() -> Result<PathBuf> {
    program(&DECRYPTS, "decrypts")
}

fn program(set: &ProgramSet, name: &str) -> Result<PathBuf> {
    let mut paths = set.ensure(None)?;
    paths.remove(name).with_context(|| format!("nothing builds `{name}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binaries::testbed;

    #[test]
    fn the_versions_that_are_named_are_those_that_are_built() {
        for (oracle, module, path) in [
            (UpstreamProgram::Helm, "helm", "helm.sh/helm/v4"),
            (UpstreamProgram::Helm3, "helm3", "helm.sh/helm/v3"),
            (UpstreamProgram::Kustomize, "kustomize", "sigs.k8s.io/kustomize/kustomize/v5"),
            (UpstreamProgram::Helmfile, "helmfile", "github.com/helmfile/helmfile"),
            (
                UpstreamProgram::HelmController,
                "helm-controller",
                "github.com/fluxcd/helm-controller",
            ),
            (
                UpstreamProgram::KustomizeController,
                "kustomize-controller",
                "github.com/fluxcd/kustomize-controller",
            ),
            (
                UpstreamProgram::SourceController,
                "source-controller",
                "github.com/fluxcd/source-controller",
            ),
            (
                UpstreamProgram::NotificationController,
                "notification-controller",
                "github.com/fluxcd/notification-controller",
            ),
            (
                UpstreamProgram::ImageReflectorController,
                "image-reflector-controller",
                "github.com/fluxcd/image-reflector-controller",
            ),
            (
                UpstreamProgram::ImageAutomationController,
                "image-automation-controller",
                "github.com/fluxcd/image-automation-controller",
            ),
            (UpstreamProgram::Flux, "flux", "github.com/fluxcd/flux2/v2"),
            (UpstreamProgram::Sops, "sops", "github.com/getsops/sops/v3"),
            (UpstreamProgram::Age, "sops", "filippo.io/age"),
            (UpstreamProgram::AgeKeygen, "sops", "filippo.io/age"),
            (UpstreamProgram::Cosign, "cosign", "github.com/sigstore/cosign/v3"),
            (UpstreamProgram::Notation, "notation", "github.com/notaryproject/notation"),
        ] {
            let text = std::fs::read_to_string(testbed().join(module).join("go.mod")).unwrap();
            let (_, version) = oracle.version().split_once(' ').unwrap();
            let wanted = format!("{path} {version}");
            assert!(text.lines().any(|line| line.contains(&wanted)), "{module} is not {wanted}");
        }
        let version = UpstreamProgram::Helm.version().trim_start_matches("helm ");
        assert!(HELM.recipes[0].link_flags.ends_with(&format!("={version}")));
    }
}
