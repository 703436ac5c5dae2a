//! Functions that Helm's templates have beyond Go's own, as far as they need no chart: those of sprig 3.3.0 without
//! `env` and `expandenv`, and Helm 4.2's for YAML, JSON and TOML; Helm 4.3's durations too.
//!
//! A function is one entry in one file below `functions/`: its name, its signature as Go writes it, and its body.
//! What they read besides their arguments (the time, randomness, names of hosts) comes through [`TemplateEnvironment`].
//!
//! Here: what is offered. Elsewhere: `include`, `tpl`, `required`, `lookup` (`helm`), Go's own functions (`gotemplate`),
//! how entries are kept (`function_table.rs`), signatures (`function_signature.rs`), what bodies are given (`arguments.rs`),
//! numbers out of any value (`number_cast.rs`), decimal numbers (`decimal.rs`), YAML as values (`yaml.rs`), the room
//! that they take (`memory_size.rs`).

mod arguments;
mod decimal;
mod function_signature;
mod function_table;
mod functions;
mod memory_size;
mod number_cast;
mod template_environment;
#[cfg(test)]
mod test_rendering;
#[cfg(test)]
mod testing;
mod yaml;

pub use arguments::walk;
pub use function_table::{functions, hermetic_functions};
pub use functions::yaml::write_yaml_v3;
pub use memory_size::weight;
pub use template_environment::{RandomFill, TemplateEnvironment};
pub use yaml::read_yaml;
