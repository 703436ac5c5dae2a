//! What functions read besides their arguments: the time, randomness, host names.

use std::ops::Deref;

use golang::time::{GoTime, GoTimeZone};
use golang::value::GoMap;

/// Fills a buffer with unpredictable random bytes.
pub type RandomFill = dyn Fn(&mut [u8]) + Send + Sync;

/// The environment of a template. The output of a template depends only on this, its data and its text.
pub trait TemplateEnvironment: Send + Sync {
    /// The time at which templates run, in the local zone.
    fn now(&self) -> GoTime;

    /// The local zone.
    fn local(&self) -> &GoTimeZone;

    /// Where random bytes come from; `None` in a run in parallel with others, since the result would depend on which of
    /// them draws first. The result of such a run is not used.
    fn randomness(&self) -> Option<&RandomFill>;

    /// An address of a host: an empty text where names must not be looked up.
    ///
    /// # Errors
    /// Why the host has no address.
    fn address_of(&self, host: &str) -> Result<String, String>;

    /// Whether a template may change a map.
    ///
    /// A run in parallel with others must not change shared data, and gets `false`; its result is not used then.
    fn may_change(&self, _: &GoMap) -> bool {
        true
    }

    /// Takes note that a function has used the time or randomness, so that the next run may give something else.
    fn drew(&self, _: &'static str) {}
}

/// The environment of one function: what the function draws is noted under its name.
pub(crate) struct FunctionEnvironment<'w> {
    pub(crate) template_environment: &'w dyn TemplateEnvironment,
    pub(crate) function: &'static str,
}

impl TemplateEnvironment for FunctionEnvironment<'_> {
    fn now(&self) -> GoTime {
        self.template_environment.drew(self.function);
        self.template_environment.now()
    }

    fn local(&self) -> &GoTimeZone {
        self.template_environment.local()
    }

    fn randomness(&self) -> Option<&RandomFill> {
        self.template_environment.drew(self.function);
        self.template_environment.randomness()
    }

    fn address_of(&self, host: &str) -> Result<String, String> {
        self.template_environment.address_of(host)
    }

    fn may_change(&self, map: &GoMap) -> bool {
        self.template_environment.may_change(map)
    }
}

/// The environment of a function that needs random bytes. A run in parallel with others does not have one, so bytes are
/// always drawn in the same order.
#[derive(Clone, Copy)]
pub(crate) struct RandomDraws<'w> {
    template_environment: &'w dyn TemplateEnvironment,
    fill: &'w RandomFill,
}

impl<'w> RandomDraws<'w> {
    pub(crate) fn of(template_environment: &'w dyn TemplateEnvironment) -> Option<Self> {
        Some(Self { template_environment, fill: template_environment.randomness()? })
    }

    /// Fills a buffer with unpredictable random bytes.
    pub(crate) fn fill(&self, buffer: &mut [u8]) {
        (self.fill)(buffer);
    }
}

impl<'w> Deref for RandomDraws<'w> {
    type Target = dyn TemplateEnvironment + 'w;

    fn deref(&self) -> &Self::Target {
        self.template_environment
    }
}

/// The error of a function that needs to run alone; the caller drops the result of such a run, so it is never shown.
pub(crate) const NOT_ALONE: &str = "others run at the same time";
