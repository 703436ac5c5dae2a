//! Helm 4.2 as far as it needs no cluster: charts, values, templates, manifests, names.
//!
//! Values are `golang::Value`: a number that a user `--set` is an `int64` and one from YAML a `float64`, a file that is
//! set may be bytes, tables are shared where Go shares them, and templates see all of that.
//! Where an answer is a document (values of a release, what is hashed), it is `serde_json::Value`.
//!
//! The output of a render depends only on a chart, values, a release and the environment ([`RenderEnvironment`]).
//! Errors and warnings quote values, which may be secrets: show them only to users who may see the values.
//!
//! Here: `--set` ([`strvals`]), charts ([`chart`]), values of charts and their dependencies ([`values`]), schemas ([`schema`]), templates
//! ([`render`]), rendered manifests ([`manifests`]), all of it one after the other ([`release`]), `.helmignore`
//! ([`ignore`]), names of releases ([`releasename`]), what `helm lint` says ([`mod@lint`]).
//! Elsewhere: the language of templates (`gotemplate`), its functions (`sprig`), YAML (`goyaml`), access to a cluster
//! (the program).

pub mod capabilities;
pub mod chart;
pub mod ignore;
pub mod lint;
pub mod manifests;
mod parallel_work;
pub mod releasename;
pub mod render;
pub mod render_environment;
pub mod schema;
pub mod strvals;
pub mod template;
pub mod values;
pub mod warning;

pub use render_environment::RenderEnvironment;
