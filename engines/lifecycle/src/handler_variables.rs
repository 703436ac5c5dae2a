//! Variables of an event for the strings of handlers, such as `${subject}` in a name, a URL or a query.
//!
//! The user who binds a Lifecycle chooses parameters, and the author of the Lifecycle writes the text around them. Each value
//! is escaped for its position in the text, so that it cannot change the meaning of the text.

use std::collections::BTreeMap;

use envsubst::{SubstitutionLimits, UnsetVariablePolicy, substitute};

/// The place of a value in a text, which determines how it is escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableEscapingContext {
    /// In the name of an object, without escapes.
    Name,
    /// In a URL, after the host.
    Url,
    /// Within a string of a query in PromQL.
    Query,
}

/// Values by name. A variable of the event takes precedence over a parameter of the same name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LifecycleHandlerVariables {
    own: BTreeMap<&'static str, String>,
    parameters: BTreeMap<String, String>,
}

impl LifecycleHandlerVariables {
    /// The variables of an event, and the parameters of its binding.
    pub fn new(own: BTreeMap<&'static str, String>, parameters: BTreeMap<String, String>) -> Self {
        Self { own, parameters }
    }

    /// Replaces the variables in a text.
    ///
    /// # Errors
    /// The text has an unknown form, or a variable has no value.
    pub fn fill(&self, text: &str, place: VariableEscapingContext) -> Result<String, String> {
        let own = self.own.iter().map(|(name, value)| ((*name).to_owned(), value));
        let parameters = self.parameters.iter().map(|(name, value)| (name.clone(), value));
        // Later ones replace earlier ones.
        let values: BTreeMap<String, String> =
            parameters.chain(own).map(|(name, value)| (name, escaped(value, place))).collect();
        let value = |name: &str| values.get(name).map(String::as_bytes);
        let filled = substitute(
            text.as_bytes(),
            value,
            UnsetVariablePolicy::Error,
            SubstitutionLimits::default(),
        );
        let filled = filled.map_err(|error| error.to_string())?;
        String::from_utf8(filled).map_err(|_| "it is not UTF-8".to_owned())
    }

    /// The variables as environment variables, escaped for the `env` of a container.
    ///
    /// Kubernetes replaces `$(NAME)` in such values with other variables of the container, and `$$` with `$`.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let literal = |value: &String| value.replace('$', "$$");
        let own =
            self.own.iter().map(|(name, value)| (spelled("LIFECYCLE_", name), literal(value)));
        let parameters = self
            .parameters
            .iter()
            .map(|(name, value)| (spelled("LIFECYCLE_PARAMETER_", name), literal(value)));
        own.chain(parameters).collect()
    }
}

/// The name of an environment variable after `prefix`: `subjectKind` becomes `SUBJECT_KIND`.
fn spelled(prefix: &str, name: &str) -> String {
    let mut spelled = prefix.to_owned();
    for (place, letter) in name.chars().enumerate() {
        if letter.is_ascii_uppercase() && place > 0 {
            spelled.push('_');
        }
        let letter = letter.to_ascii_uppercase();
        spelled.push(if letter.is_ascii_alphanumeric() { letter } else { '_' });
    }
    spelled
}

fn escaped(value: &str, place: VariableEscapingContext) -> String {
    match place {
        VariableEscapingContext::Name => value.to_owned(),
        VariableEscapingContext::Url => {
            let mut escaped = String::new();
            for byte in value.bytes() {
                match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
                    true => escaped.push(char::from(byte)),
                    false => escaped.push_str(&format!("%{byte:02X}")),
                }
            }
            // A segment of dots is a step to another path.
            if escaped.bytes().all(|byte| byte == b'.') {
                escaped.replace('.', "%2E")
            } else {
                escaped
            }
        }
        // Escapes that every kind of string but the raw one has.
        VariableEscapingContext::Query => {
            value.chars().fold(String::new(), |mut escaped, letter| {
                match letter {
                    '\\' | '"' | '\'' => escaped.extend(['\\', letter]),
                    '`' => escaped.push_str("\\x60"),
                    '\n' => escaped.push_str("\\n"),
                    letter => escaped.push(letter),
                }
                escaped
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(value: &str) -> LifecycleHandlerVariables {
        let own = BTreeMap::from([
            ("subject", "web".to_owned()),
            ("subjectKind", "HelmRelease".to_owned()),
        ]);
        let parameters = [("subject", "forged"), ("rate", value)];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
        LifecycleHandlerVariables::new(own, BTreeMap::from(parameters))
    }

    #[test]
    fn what_the_event_says_hides_parameters() {
        let of = |text| variables("7").fill(text, VariableEscapingContext::Name);
        assert_eq!(of("${subject}-${rate}-$${x}").unwrap(), "web-7-${x}");
        assert!(of("${unknown}").unwrap_err().contains("unknown"));
        assert_eq!(of("${other:-default}").unwrap(), "default");
    }

    #[test]
    fn a_value_stays_a_value() {
        let url = |value| {
            variables(value)
                .fill("https://a/check/${rate}?x=${rate}", VariableEscapingContext::Url)
                .unwrap()
        };
        assert_eq!(url("a b"), "https://a/check/a%20b?x=a%20b");
        assert_eq!(
            url("../../x?y#z@b"),
            "https://a/check/..%2F..%2Fx%3Fy%23z%40b?x=..%2F..%2Fx%3Fy%23z%40b"
        );
        assert_eq!(url(".."), "https://a/check/%2E%2E?x=%2E%2E");
        let query = |value| {
            variables(value)
                .fill("sum(rate(x{app=\"${rate}\"}[5m]))", VariableEscapingContext::Query)
                .unwrap()
        };
        assert_eq!(query("\"} or vector(0) #"), "sum(rate(x{app=\"\\\"} or vector(0) #\"}[5m]))");
        assert_eq!(query("a\\"), "sum(rate(x{app=\"a\\\\\"}[5m]))");
        assert_eq!(query("`\n'"), "sum(rate(x{app=\"\\x60\\n\\'\"}[5m]))");
    }

    #[test]
    fn environment_variables_have_names_that_a_shell_knows() {
        let environment = variables("7").environment();
        let names: Vec<&str> = environment.keys().map(String::as_str).collect();
        let wanted = [
            "LIFECYCLE_PARAMETER_RATE",
            "LIFECYCLE_PARAMETER_SUBJECT",
            "LIFECYCLE_SUBJECT",
            "LIFECYCLE_SUBJECT_KIND",
        ];
        assert_eq!(names, wanted);
        assert_eq!(environment["LIFECYCLE_SUBJECT"], "web");
    }

    /// What a container gets as the value of a variable: `Expand` of Kubernetes' `third_party/forked/golang/expansion`, with
    /// a secret in each variable that is named.
    fn expanded(value: &str) -> String {
        let mut expanded = String::new();
        let mut rest = value;
        while let Some((before, after)) = rest.split_once('$') {
            expanded.push_str(before);
            let name = after.strip_prefix('(').and_then(|it| it.split_once(')'));
            (expanded, rest) = match (after.strip_prefix('$'), name) {
                (Some(after), _) => (expanded + "$", after),
                (None, Some((_, after))) => (expanded + "secret", after),
                (None, None) => (expanded + "$", after),
            };
        }
        expanded + rest
    }

    #[test]
    fn a_parameter_names_no_other_variable_of_the_container() {
        assert_eq!(expanded("$(TOKEN) $$(TOKEN)"), "secret $(TOKEN)");
        for value in ["$(TOKEN)", "$$(TOKEN)", "$$$(TOKEN)", "a$", "$", "$$", "${TOKEN}", "7"] {
            let environment = variables(value).environment();
            assert_eq!(expanded(&environment["LIFECYCLE_PARAMETER_RATE"]), value);
        }
    }
}
