//! The flags of `windlass helmfile`. They are those of the program `helmfile`, with the same environment variables.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use helmfile::{HelmfileDialect, HelmfilePlanSettings, RenderCommandFlags, RenderPurpose};

use windlass_cli_runtime::time_limit;

/// Print what a helmfile says and render its releases, as `helmfile` does
///
/// No program that a helmfile names is run without --allow-exec: hooks are not run, and what would run a program is an
/// error that says what to use instead. Addresses are fetched, and `diff` reads a cluster.
#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub struct HelmfileFlags {
    #[command(subcommand)]
    pub(super) command: HelmfileCommand,

    /// Helmfile or directory; `-` for standard input
    #[arg(
        short,
        long,
        global = true,
        env = "HELMFILE_FILE_PATH",
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    file: String,

    /// Environment
    #[arg(
        short,
        long,
        global = true,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    environment: String,

    /// Only releases with these labels: key=value,key!=value; may be repeated, one has to match
    #[arg(short = 'l', long, global = true, value_name = "LABELS", allow_hyphen_values = true)]
    selector: Vec<String>,

    /// Namespace of all releases
    #[arg(
        short,
        long,
        global = true,
        env = "HELMFILE_NAMESPACE",
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    namespace: String,

    /// Chart of all releases
    #[arg(
        short,
        long,
        global = true,
        value_name = "CHART",
        default_value = "",
        hide_default_value = true
    )]
    chart: String,

    /// Context of all releases
    #[arg(
        long,
        global = true,
        env = "HELMFILE_KUBE_CONTEXT",
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    kube_context: String,

    /// Set state values: key1=val1,key2=val2
    #[arg(long, global = true, value_name = "VALUES", allow_hyphen_values = true)]
    state_values_set: Vec<String>,

    /// Set state values that are strings: key1=val1,key2=val2
    #[arg(long, global = true, value_name = "VALUES", allow_hyphen_values = true)]
    state_values_set_string: Vec<String>,

    /// YAML file with state values; may be repeated
    #[arg(long, global = true, value_name = "FILE")]
    state_values_file: Vec<String>,

    /// Kubeconfig of `diff`; by default `$KUBECONFIG`, then ~/.kube/config
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) kubeconfig: Option<String>,

    /// Let `exec` and `envExec` in templates run programs of this machine
    #[arg(long, global = true)]
    pub(super) allow_exec: bool,

    /// Succeed if no release matches
    #[arg(long, global = true)]
    pub(super) allow_no_matching_release: bool,

    /// Do not put charts of local directories into charts that name them
    #[arg(long, global = true)]
    skip_deps: bool,

    /// Only print errors
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,

    /// Maximum duration, such as 2m; 0 for no limit but ten minutes for each chart or address that is fetched
    #[arg(long, global = true, value_name = "DURATION", default_value = "20s", value_parser = time_limit::parse)]
    pub(super) time_limit: Duration,

    /// What is printed as `helmBinary`; nothing is run
    #[arg(
        short = 'b',
        long,
        global = true,
        hide = true,
        env = "HELMFILE_HELM_BINARY",
        default_value = ""
    )]
    helm_binary: String,

    /// What is printed as `kustomizeBinary`; nothing is run
    #[arg(
        short = 'k',
        long,
        global = true,
        hide = true,
        env = "HELMFILE_KUSTOMIZE_BINARY",
        default_value = ""
    )]
    kustomize_binary: String,

    #[command(flatten)]
    ignored: IgnoredHelmfileFlags,
}

/// Flags of helmfile without effect: nothing is fetched, run or logged, and helmfiles are processed one by one.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct IgnoredHelmfileFlags {
    /// No effect: repositories are not updated
    #[arg(long, global = true, hide = true)]
    skip_refresh: bool,
    /// No effect: helmfiles are processed one by one
    #[arg(long, global = true, hide = true)]
    sequential_helmfiles: bool,
    /// No effect: nothing is run
    #[arg(long, global = true, hide = true)]
    enable_live_output: bool,
    /// No effect: there is nothing to be colored
    #[arg(long, global = true, hide = true)]
    no_color: bool,
    /// No effect: there is nothing to be colored
    #[arg(long, global = true, hide = true)]
    color: bool,
    /// No effect: there is no log
    #[arg(long, global = true, hide = true)]
    debug: bool,
    /// No effect: there is no log
    #[arg(long, global = true, hide = true, value_name = "LEVEL")]
    log_level: Option<String>,
}

/// A subcommand of `windlass helmfile`, which has the name and flags of a command of helmfile.
#[derive(Debug, Subcommand)]
pub(super) enum HelmfileCommand {
    /// Print helmfiles with all that is rendered, merged and inherited
    Build {
        /// Print what is in values files instead of their names
        #[arg(long)]
        embed_values: bool,
    },
    /// List releases
    List {
        /// Format
        #[arg(long, value_enum, default_value_t = HelmfileListFormat::Table, hide_default_value = true)]
        output: HelmfileListFormat,
        /// No effect: `list` needs no charts
        #[arg(long, hide = true)]
        skip_charts: bool,
        /// No effect: secrets are not decrypted
        #[arg(long, hide = true)]
        keep_temp_dir: bool,
    },
    /// Render releases
    Template(HelmfileTemplateFlags),
    /// Lint the charts of releases with their values, as `helm lint` does
    Lint(HelmfileLintFlags),
    /// Write the versions of charts in repositories to lock files
    Deps(HelmfileDepsFlags),
    /// Show what an upgrade of releases would change in the cluster; nothing is changed
    Diff(HelmfileDiffFlags),
    /// Print the groups in which releases are processed
    ShowDag,
    /// Print environments with their values
    PrintEnv {
        /// Format
        #[arg(long, value_enum, default_value_t = HelmfileEnvFormat::Yaml, hide_default_value = true)]
        output: HelmfileEnvFormat,
    },
}

impl HelmfileCommand {
    /// Whether the command, like that of helmfile, prints the output of all helmfiles before one that cannot be loaded.
    ///
    /// Differs(helmfile 1.8): `diff` compares nothing then.
    pub(super) fn prints_until_error(&self) -> bool {
        match self {
            Self::Build { .. }
            | Self::Template(_)
            | Self::Lint(_)
            | Self::ShowDag
            | Self::PrintEnv { .. } => true,
            Self::List { .. } | Self::Deps(_) | Self::Diff(_) => false,
        }
    }
}

/// The output formats of `windlass helmfile list`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum HelmfileListFormat {
    /// A table
    #[value(alias = "")]
    Table,
    /// JSON
    Json,
}

/// The output formats of `windlass helmfile print-env`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum HelmfileEnvFormat {
    /// YAML
    Yaml,
    /// JSON
    Json,
}

/// The flags of `windlass helmfile template`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct HelmfileTemplateFlags {
    /// Also render what selected releases need
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    include_needs: bool,
    /// Also render what selected releases need, and what that needs
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    include_transitive_needs: bool,
    /// Leave out what selected releases need
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    skip_needs: bool,
    /// Include the CRDs of charts
    #[arg(long)]
    include_crds: bool,
    /// Leave out tests
    #[arg(long)]
    skip_tests: bool,
    /// Leave out hooks of charts
    #[arg(long)]
    no_hooks: bool,
    /// Do not validate values against the schemas of charts
    #[arg(long)]
    skip_schema_validation: bool,
    /// Kubernetes version for .Capabilities.KubeVersion
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    kube_version: String,
    /// Only print the output of these templates
    #[arg(long, value_name = "TEMPLATE")]
    show_only: Vec<String>,
    /// Set values of all releases: key1=val1,key2=val2
    #[arg(long, value_name = "VALUES", allow_hyphen_values = true)]
    set: Vec<String>,
    /// YAML file with values of all releases; may be repeated
    #[arg(long, value_name = "FILE")]
    values: Vec<String>,
    /// More flags of `helm template`, in place of `helmDefaults.args`
    #[arg(
        long,
        value_name = "FLAGS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    args: String,
    /// More flags of `helm template`, in place of `helmDefaults.templateArgs`
    #[arg(
        long,
        value_name = "FLAGS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    template_args: String,
    /// No effect: releases are rendered one by one
    #[arg(long, hide = true, value_name = "COUNT", default_value_t = 0)]
    concurrency: i64,
    /// No effect: there are no temporary files
    #[arg(long, hide = true)]
    skip_cleanup: bool,
}

/// Flags of `deps`, which have no effect: no program is run, and repositories are not kept.
#[derive(Debug, Args)]
pub(super) struct HelmfileDepsFlags {
    /// No effect: helm is not run
    #[arg(long, hide = true, value_name = "FLAGS", allow_hyphen_values = true)]
    args: Option<String>,
    /// No effect: repositories are not kept
    #[arg(long, hide = true)]
    skip_repos: bool,
    /// No effect: repositories get requests one by one
    #[arg(long, hide = true, value_name = "COUNT", default_value_t = 0)]
    concurrency: i64,
}

/// The flags of `windlass helmfile lint`.
#[derive(Debug, Args)]
pub(super) struct HelmfileLintFlags {
    /// Also lint what selected releases need
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    include_needs: bool,
    /// Also lint what selected releases need, and what that needs
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    include_transitive_needs: bool,
    /// Leave out what selected releases need
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    skip_needs: bool,
    /// Set values of all releases: key1=val1,key2=val2
    #[arg(long, value_name = "VALUES", allow_hyphen_values = true)]
    set: Vec<String>,
    /// YAML file with values of all releases; may be repeated
    #[arg(long, value_name = "FILE")]
    values: Vec<String>,
    /// More flags of `helm lint`, before those of `helmDefaults.args`
    #[arg(
        long,
        value_name = "FLAGS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    args: String,
    /// No effect: charts are linted one by one
    #[arg(long, hide = true, value_name = "COUNT", default_value_t = 0)]
    concurrency: i64,
}

impl HelmfileLintFlags {
    /// The render options of `lint`.
    pub(super) fn options(&self, flags: &HelmfileFlags) -> RenderCommandFlags {
        RenderCommandFlags {
            purpose: RenderPurpose::Lint,
            skip_deps: flags.skip_deps,
            include_needs: self.include_needs || self.include_transitive_needs,
            skip_needs: self.skip_needs,
            set: self.set.clone(),
            values: self.values.clone(),
            args: self.args.clone(),
            ..RenderCommandFlags::default()
        }
    }
}

/// The flags of `windlass helmfile diff`.
#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(super) struct HelmfileDiffFlags {
    /// Also compare what selected releases need
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    include_needs: bool,
    /// Also compare what selected releases need, and what that needs
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    include_transitive_needs: bool,
    /// Leave out what selected releases need
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    skip_needs: bool,
    /// Exit with status 2 if anything would change
    #[arg(long)]
    pub(super) detailed_exitcode: bool,
    /// Lines around each change; 0 for all
    #[arg(long, value_name = "LINES", default_value_t = 0)]
    pub(super) context: usize,
    /// Do not mask the values of Secrets
    #[arg(long)]
    pub(super) show_secrets: bool,
    /// Leave out Secrets
    #[arg(long)]
    pub(super) suppress_secrets: bool,
    /// Leave out objects of this kind; may be repeated
    #[arg(long, value_name = "KIND")]
    pub(super) suppress: Vec<String>,
    /// Do not show the objects of releases that are not installed
    #[arg(long)]
    pub(super) skip_diff_on_install: bool,
    /// Do not validate values against the schemas of charts
    #[arg(long)]
    skip_schema_validation: bool,
    /// Set values of all releases: key1=val1,key2=val2
    #[arg(long, value_name = "VALUES", allow_hyphen_values = true)]
    set: Vec<String>,
    /// YAML file with values of all releases; may be repeated
    #[arg(long, value_name = "FILE")]
    values: Vec<String>,
    /// More flags of `helm template`, in place of `helmDefaults.args`
    #[arg(
        long,
        value_name = "FLAGS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    args: String,
    /// More flags of `helm template`, in place of `helmDefaults.templateArgs`
    #[arg(
        long,
        value_name = "FLAGS",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    template_args: String,
    /// No effect: hooks are not compared
    #[arg(long, hide = true)]
    no_hooks: bool,
    /// No effect: hooks are not compared, and tests are hooks
    #[arg(long, hide = true)]
    include_tests: bool,
    /// No effect: the API server validates what would change
    #[arg(long, hide = true)]
    validate: bool,
    /// No effect: releases are compared one by one
    #[arg(long, hide = true, value_name = "COUNT", default_value_t = 0)]
    concurrency: i64,
}

impl HelmfileDiffFlags {
    /// The render options of `diff`.
    pub(super) fn options(&self, flags: &HelmfileFlags) -> RenderCommandFlags {
        RenderCommandFlags {
            purpose: RenderPurpose::Diff,
            skip_deps: flags.skip_deps,
            include_needs: self.include_needs || self.include_transitive_needs,
            skip_needs: self.skip_needs,
            no_hooks: true,
            skip_schema_validation: self.skip_schema_validation,
            set: self.set.clone(),
            values: self.values.clone(),
            args: self.args.clone(),
            template_args: self.template_args.clone(),
            ..RenderCommandFlags::default()
        }
    }
}

impl HelmfileTemplateFlags {
    fn options(&self, skip_deps: bool) -> RenderCommandFlags {
        RenderCommandFlags {
            purpose: RenderPurpose::Template,
            skip_deps,
            include_needs: self.include_needs || self.include_transitive_needs,
            skip_needs: self.skip_needs,
            include_crds: self.include_crds,
            skip_tests: self.skip_tests,
            no_hooks: self.no_hooks,
            skip_schema_validation: self.skip_schema_validation,
            kube_version: self.kube_version.clone(),
            show_only: self.show_only.clone(),
            set: self.set.clone(),
            values: self.values.clone(),
            args: self.args.clone(),
            template_args: self.template_args.clone(),
        }
    }
}

impl HelmfileFlags {
    /// The render options of `template`.
    pub(super) fn options(&self, given: &HelmfileTemplateFlags) -> RenderCommandFlags {
        given.options(self.skip_deps)
    }

    /// The settings of the engine. If no environment is given, `HELMFILE_ENVIRONMENT` or `default` applies.
    pub(super) fn settings(&self) -> HelmfilePlanSettings {
        let of_variable = || std::env::var("HELMFILE_ENVIRONMENT").ok();
        let given = Some(self.environment.clone()).filter(|name| !name.is_empty());
        let environment = given.or_else(of_variable).filter(|name| !name.is_empty());
        HelmfilePlanSettings {
            dialect: HelmfileDialect::V1,
            file: self.file.clone(),
            environment: environment.unwrap_or_else(|| "default".to_owned()),
            selectors: self.selector.clone(),
            namespace: self.namespace.clone(),
            chart: self.chart.clone(),
            kube_context: self.kube_context.clone(),
            helm_binary: self.helm_binary.clone(),
            kustomize_binary: self.kustomize_binary.clone(),
            state_values_files: self.state_values_file.clone(),
            state_values_set: self.state_values_set.clone(),
            state_values_set_string: self.state_values_set_string.clone(),
        }
    }
}
