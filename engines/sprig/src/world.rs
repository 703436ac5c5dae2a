//! What functions know of the world.

use golang::time::{Time, Zone};

/// The world as templates see it. A run of a template is a function of this, its data and its text.
pub trait World: Send + Sync {
    /// The time at which templates run, in the local zone.
    fn now(&self) -> Time;

    /// The local zone.
    fn local(&self) -> &Zone;

    /// Fills a buffer with random bytes that nobody can guess.
    fn fill(&self, buffer: &mut [u8]);

    /// An address of a host: an empty text where names must not be looked up.
    ///
    /// # Errors
    /// Why there is none.
    fn address_of(&self, host: &str) -> Result<String, String>;
}
