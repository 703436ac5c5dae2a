//! The functions of Helm's templates beyond Go's own, except for those that need a chart. They are the functions of sprig 3.3.0
//! without `env` and `expandenv`, those of Helm 4.2 for YAML, JSON and TOML, and those of Helm 4.3 for durations.
//!
//! Each function is an entry in a file below `functions/`, with its name, its signature in Go's notation, and its body.
//! Functions read the time, random numbers and host names through [`TemplateEnvironment`].
//!
//! Here: the public functions. Elsewhere: `include`, `tpl`, `required`, `lookup` (`helm`), Go's own functions (`gotemplate`),
//! the table of entries (`function_table.rs`), signatures (`function_signature.rs`), reading arguments (`arguments.rs`),
//! converting values to numbers (`number_cast.rs`), decimal numbers (`decimal.rs`), YAML as values (`yaml.rs`), the memory of
//! values (`memory_size.rs`).

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
mod yaml_to_go_value;

pub use arguments::walk;
pub use function_table::{functions, hermetic_functions};
pub use functions::yaml::write_yaml_v3;
pub use memory_size::weight;
pub use template_environment::{RandomFill, TemplateEnvironment};
pub use yaml_to_go_value::read_yaml;
