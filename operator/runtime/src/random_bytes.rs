//! Random bytes for certificates and passwords.

/// Fills a buffer. The kernel is asked without opening a file, which fails where many are open; and the library for
/// TLS would measure the processor for 40 ms before its first random byte.
pub fn fill(buffer: &mut [u8]) {
    if getrandom::fill(buffer).is_err() {
        // A kernel without random numbers; secrets must not be made of anything else.
        std::process::abort();
    }
}
