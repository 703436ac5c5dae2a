//! Random bytes for certificates and passwords.

/// Fills a buffer with random bytes of the kernel. It opens no file, because that fails if too many files are open. The TLS
/// library would need 40 ms for its first random byte.
pub fn fill(buffer: &mut [u8]) {
    if getrandom::fill(buffer).is_err() {
        // The kernel has no random numbers, and secrets must not come from another source.
        std::process::abort();
    }
}
