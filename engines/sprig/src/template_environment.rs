//! The inputs of functions besides their arguments: the time, random numbers, host names.

use std::ops::Deref;

use golang::time::{GoTime, GoTimeZone};
use golang::value::GoMap;

/// Fills a buffer with unpredictable random bytes.
pub type RandomFill = dyn Fn(&mut [u8]) + Send + Sync;

/// The environment of a template. The output of a template depends only on this, its data and its text.
pub trait TemplateEnvironment: Send + Sync {
    /// The time at which templates run, in the local zone.
    fn now(&self) -> GoTime;

    /// The local time zone of the template's environment.
    fn local(&self) -> &GoTimeZone;

    /// The source of random bytes. `None` in a run that is parallel to others, because the result would depend on which run
    /// draws first. The result of such a run is dropped.
    fn randomness(&self) -> Option<&RandomFill>;

    /// An IP address of a host. If name lookups are disabled, an empty text.
    ///
    /// # Errors
    /// Why the host has no address.
    fn address_of(&self, host: &str) -> Result<String, String>;

    /// Whether a template may change a map.
    ///
    /// A run that is parallel to others must not change shared data and gets `false`. Its result is dropped then.
    fn may_change(&self, _: &GoMap) -> bool {
        true
    }

    /// Records that a function has used the time or random numbers, so that the next run may give another result.
    fn drew(&self, _: &'static str) {}
}

/// The environment of one function. Random numbers and times that it draws are recorded under the function's name.
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

/// The environment of a function that needs random bytes. It does not exist in a run that is parallel to others, so that bytes
/// are always drawn in the same order.
#[derive(Clone, Copy)]
pub(crate) struct RandomBytesEnvironment<'w> {
    template_environment: &'w dyn TemplateEnvironment,
    fill: &'w RandomFill,
}

impl<'w> RandomBytesEnvironment<'w> {
    pub(crate) fn of(template_environment: &'w dyn TemplateEnvironment) -> Option<Self> {
        Some(Self { template_environment, fill: template_environment.randomness()? })
    }

    /// Fills a buffer with unpredictable random bytes.
    pub(crate) fn fill(&self, buffer: &mut [u8]) {
        (self.fill)(buffer);
    }
}

impl<'w> Deref for RandomBytesEnvironment<'w> {
    type Target = dyn TemplateEnvironment + 'w;

    fn deref(&self) -> &Self::Target {
        self.template_environment
    }
}

/// The error of a function that must run alone. The caller drops the result of such a run, so the error is never shown.
pub(crate) const NOT_ALONE: &str = "others run at the same time";
