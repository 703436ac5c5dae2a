//! The parts of Helm 4.2 that need no cluster: charts, values, templates, manifests, and names of releases.
//!
//! Values are `golang::Value`, because templates see Go's types. A number from `--set` is an `int64`, and one from YAML
//! a `float64`. The content of a file may be bytes, and tables are shared where Go shares them. Documents, such as
//! stored or hashed values of a release, are `serde_json::Value`.
//!
//! The output of a render depends only on a chart, values, a release and the environment ([`RenderEnvironment`]).
//! Errors and warnings quote values, which may be secrets: show them only to users who may see the values.
//!
//! Here: `--set` ([`strvals`]), charts ([`chart`]), values of charts and their dependencies ([`values`]), schemas
//! ([`schema`]), templates ([`render`]), and rendered manifests ([`manifests`]). [`template`] does all these steps in
//! order. Further: `.helmignore` ([`ignore`]), names of releases ([`releasename`]), and `helm lint` ([`mod@lint`]).
//! Elsewhere: the template language (`gotemplate`), its functions (`sprig`), YAML (`goyaml`), and access to a cluster
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
