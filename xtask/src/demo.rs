//! `cargo xtask demo` compiles the programs of the demo side by side, and starts the demo.
//!
//! `tools/demo` is the demo itself, and `testbed::binaries` builds the control plane.

use testbed::binaries::TestbedBinaries;
use testbed::machine_requirements;
use testbed::progress::{dim, step};

use crate::developer_tool::{DEMO, ToolArguments};

/// Builds the demo and starts it.
///
/// # Errors
/// A program does not build, or the demo fails.
pub(crate) fn run(arguments: &ToolArguments) -> anyhow::Result<()> {
    let asks_for_help = arguments.as_slice().iter().any(|it| it == "--help" || it == "-h");
    let names_cluster =
        arguments.as_slice().iter().any(|it| it.to_string_lossy().starts_with("--kubeconfig"));
    if asks_for_help {
        return DEMO.run(arguments.as_slice());
    }
    let compile = || {
        step("windlass and the demo, compiled from Rust", || {
            DEMO.build_with_progress(&["windlass"])
        })
    };
    let present = if names_cluster { None } else { TestbedBinaries::present()? };
    if names_cluster {
        compile()?;
    } else {
        if let Some(folder) = &present {
            let names = TestbedBinaries::names_in(folder).join(", ");
            eprintln!("  {}", dim(&format!("{names}: those of {} are used", folder.display())));
        }
        step("what the machine needs", machine_requirements::ensure)?;
        // The Rust compiler and the Go compiler share no lock. Each of them uses only one core for a part of its
        // time, so they run side by side.
        std::thread::scope(|scope| {
            let programs = scope.spawn(|| {
                step("control plane", || TestbedBinaries::ensure_with(present.as_deref()).map(drop))
            });
            let rust = compile();
            let go = programs.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a build panicked")));
            go.and(rust)
        })?;
    }
    DEMO.start_with(arguments.as_slice(), present.map(|folder| ("KUBEBUILDER_ASSETS", folder)))
}
