//! Helm 4.2 without its templates: what it does with values, manifests, ignore files and names.
//!
//! Values are `golang::Value`: a number that a user `--set` is an `int64` and one from YAML a `float64`, a file that is
//! set may be bytes, tables are shared where Go shares them, and templates see all of that.
//! Where an answer is a document (values of a release, what is hashed), it is `serde_json::Value`.
//!
//! Here: `--set` ([`strvals`]), charts and their files ([`chart`]), their schemas ([`schema`]), values of charts and their dependencies
//! ([`values`]), rendered manifests ([`manifests`]), `.helmignore` ([`ignore`]), names of releases ([`releasename`]).
//! Elsewhere: templates (`gotemplate`), YAML (`goyaml`), whatever touches a cluster.

pub mod chart;
pub mod ignore;
pub mod manifests;
pub mod releasename;
pub mod schema;
pub mod strvals;
pub mod values;
