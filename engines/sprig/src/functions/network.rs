//! Names of hosts.

use golang::GoRuntimeValue;
use gotemplate::FunctionCallContext;

use crate::arguments::{SprigResult, text};
use crate::function_table::{SprigFunctionEntry, impure};
use crate::template_environment::TemplateEnvironment;

pub(crate) const ENTRIES: &[SprigFunctionEntry] =
    &[impure("getHostByName", "func(string) string", get_host_by_name)];

/// An IP address of a host. If name lookups are disabled, the result is an empty text.
///
/// Differs(helm 4): the error has the cause, where Helm's is `invalid argument to Intn`.
fn get_host_by_name(
    template_environment: &dyn TemplateEnvironment,
    _: &mut FunctionCallContext<'_>,
    args: &[GoRuntimeValue],
) -> SprigResult {
    let host = String::from_utf8_lossy(text(args, 0));
    Ok(GoRuntimeValue::from(template_environment.address_of(&host)?))
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn the_environment_resolves_addresses() {
        check(&[
            (r#"{{ getHostByName "localhost" }}"#, "127.0.0.1"),
            (
                r#"{{ getHostByName "nowhere.invalid" }}"#,
                "error: error calling getHostByName: lookup nowhere.invalid: no such host",
            ),
        ]);
    }
}
