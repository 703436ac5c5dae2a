//! `windlass version`: prints the version of this program.

use clap::{Args as ClapArgs, ValueEnum};
use serde::Serialize;

use windlass_cli_runtime::connection::print;

/// The flags of `windlass version`.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub(super) struct VersionArgs {
    /// Format
    #[arg(short, long, value_enum, default_value_t = VersionFormat::Text, hide_default_value = true)]
    output: VersionFormat,
    /// No effect: no cluster is asked
    #[arg(long, hide = true)]
    client: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum VersionFormat {
    /// Lines for people
    Text,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// The facts that identify a build.
#[derive(Debug, Serialize)]
struct BuildVersion {
    /// The version of the release, with the prefix `v`.
    windlass: &'static str,
    /// The commit of the build. `None` if the build did not set `$WINDLASS_COMMIT`.
    commit: Option<&'static str>,
    /// The platform, as container images name it.
    platform: String,
    /// The versions of the programs that the engines reproduce.
    engines: EngineVersions,
}

#[derive(Debug, Serialize)]
struct EngineVersions {
    flux: &'static str,
    helm: &'static str,
    helmfile: &'static str,
    kustomize: &'static str,
}

impl BuildVersion {
    fn of_this() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self {
            windlass: concat!("v", env!("CARGO_PKG_VERSION")),
            commit: option_env!("WINDLASS_COMMIT").filter(|commit| !commit.is_empty()),
            platform: format!("{}/{architecture}", std::env::consts::OS),
            engines: EngineVersions {
                flux: "v2.9",
                helm: "v4.2",
                helmfile: "v1.8",
                kustomize: "v5.8.1",
            },
        }
    }

    fn text(&self) -> String {
        let EngineVersions { flux, helm, helmfile, kustomize } = self.engines;
        format!(
            "windlass: {}\ncommit: {}\nplatform: {}\nserves: flux {flux}, helm {helm}, helmfile {helmfile}, \
             kustomize {kustomize}\n",
            self.windlass,
            self.commit.unwrap_or("unknown"),
            self.platform,
        )
    }
}

/// Prints the version.
///
/// # Errors
/// Standard output is closed.
pub(super) fn run(args: VersionArgs) -> anyhow::Result<()> {
    let version = BuildVersion::of_this();
    let text = match args.output {
        VersionFormat::Text => version.text(),
        VersionFormat::Json => format!("{}\n", serde_json::to_string_pretty(&version)?),
        VersionFormat::Yaml => goyaml::emit(&serde_json::to_value(&version)?)?,
    };
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_says_its_version_and_where_it_runs() {
        let version = BuildVersion::of_this();
        let text = version.text();
        assert!(text.starts_with(&format!("windlass: v{}\n", env!("CARGO_PKG_VERSION"))), "{text}");
        assert!(text.contains("\nplatform: linux/"), "{text}");
        let value = serde_json::to_value(&version).unwrap();
        assert_eq!(value["engines"]["kustomize"], "v5.8.1");
    }
}
