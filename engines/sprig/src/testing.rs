//! An environment for tests, and running templates in it.

use golang::GoRuntimeValue;
use golang::time::{GoTime, GoTimeZone};
use gotemplate::{MissingKeyPolicy, TemplateLimits, TemplateSet};

use crate::test_rendering::DeterministicEnvironment;
use crate::{RandomFill, TemplateEnvironment};

/// An environment in which it is always 2030-05-06 07:08:09 UTC, and only one host has an address.
pub(crate) struct FixedTimeEnvironment;

impl TemplateEnvironment for FixedTimeEnvironment {
    fn now(&self) -> GoTime {
        GoTime::from_unix(1_904_281_689, 0, GoTimeZone::Utc)
    }

    fn local(&self) -> &GoTimeZone {
        &GoTimeZone::Utc
    }

    fn randomness(&self) -> Option<&RandomFill> {
        DeterministicEnvironment.randomness()
    }

    fn address_of(&self, host: &str) -> Result<String, String> {
        match host {
            "localhost" => Ok("127.0.0.1".to_owned()),
            _ => Err(format!("lookup {host}: no such host")),
        }
    }
}

/// The output of a template. If it fails, `error: ` followed by the last part of the error.
pub(crate) fn run(template: &str) -> String {
    run_with(
        template,
        GoRuntimeValue::map([("nil", GoRuntimeValue::Nil)]),
        TemplateLimits::default(),
    )
}

/// [`run`] with data and limits.
pub(crate) fn run_with(template: &str, data: GoRuntimeValue, limits: TemplateLimits) -> String {
    let mut set = TemplateSet::new("t", crate::functions::<FixedTimeEnvironment>())
        .with_missing_key(MissingKeyPolicy::Zero)
        .with_limits(limits);
    let result = match set.parse("t", template.as_bytes()) {
        Ok(_) => set.run_with("t", data, &FixedTimeEnvironment),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => {
            let error = error.to_string();
            let at = error.rfind("error calling ").or_else(|| error.rfind(">: ").map(|at| at + 3));
            format!("error: {}", &error[at.unwrap_or_default()..])
        }
    }
}

/// Runs templates and compares their output.
#[track_caller]
pub(crate) fn check(cases: &[(&str, &str)]) {
    for (template, wanted) in cases {
        assert_eq!(run(template), *wanted, "{template}");
    }
}
