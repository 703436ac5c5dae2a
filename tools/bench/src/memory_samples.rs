//! Samples the memory of one process. The kernel only keeps the peak of all resident memory since the start. It keeps
//! no peak of the heap, or of a part of a measurement.
//!
//! This module samples ten times a second. `e2e::process_usage` reads the memory.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use e2e::process_usage;
use parking_lot::Mutex;

/// How often the memory is read.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Samples the memory of a process until it is dropped.
pub(crate) struct MemorySampler {
    state: Arc<Mutex<MemorySamplerState>>,
    thread: Option<JoinHandle<()>>,
}

struct MemorySamplerState {
    id: u32,
    /// The peak in MiB.
    peak: f64,
    is_ended: bool,
}

impl MemorySampler {
    /// Starts sampling a process.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn begin(id: u32) -> anyhow::Result<Self> {
        let state = MemorySamplerState { id, peak: 0.0, is_ended: false };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let thread =
            std::thread::Builder::new().name("memory-samples".into()).spawn(move || {
                while shared.lock().sample() {
                    std::thread::sleep(SAMPLE_INTERVAL);
                }
            })?;
        Ok(Self { state, thread: Some(thread) })
    }

    /// Samples another process from now on. The peak is kept.
    pub(crate) fn follow(&self, id: u32) {
        self.state.lock().id = id;
    }

    /// Forgets the peak so far.
    pub(crate) fn forget_peak(&self) {
        let mut state = self.state.lock();
        state.peak = 0.0;
        state.sample();
    }

    /// The highest memory without files since the peak was forgotten, in MiB.
    pub(crate) fn peak(&self) -> f64 {
        let mut state = self.state.lock();
        state.sample();
        state.peak
    }

    /// The present memory without files, in MiB.
    ///
    /// # Errors
    /// When the process has ended.
    pub(crate) fn now(&self) -> anyhow::Result<f64> {
        let id = self.state.lock().id;
        process_usage::anonymous_mebibytes(id)
    }
}

impl MemorySamplerState {
    /// Samples the memory once, and returns whether sampling goes on. A process that has ended has no memory until
    /// another process is followed.
    fn sample(&mut self) -> bool {
        if let Ok(now) = process_usage::anonymous_mebibytes(self.id) {
            self.peak = self.peak.max(now);
        }
        !self.is_ended
    }
}

impl Drop for MemorySampler {
    fn drop(&mut self) {
        self.state.lock().is_ended = true;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already printed.
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_not_below_the_memory_of_now_and_is_forgotten() {
        let sampler = MemorySampler::begin(std::process::id()).unwrap();
        let now = sampler.now().unwrap();
        assert!(now > 0.0);
        sampler.state.lock().peak = now * 1000.0;
        assert!(sampler.peak() >= now * 1000.0);
        sampler.forget_peak();
        assert!(sampler.peak() > 0.0 && sampler.peak() < now * 1000.0);
    }

    #[test]
    fn a_process_that_has_ended_keeps_its_peak_until_another_is_followed() {
        // Process ids are below 2²², so no process has this one.
        let sampler = MemorySampler::begin(1 << 30).unwrap();
        assert_eq!(sampler.peak(), 0.0);
        assert!(sampler.now().is_err());
        sampler.follow(std::process::id());
        assert!(sampler.peak() > 0.0);
    }
}
