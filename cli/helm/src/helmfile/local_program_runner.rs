//! Runs the programs that helmfile templates call with `--allow-exec`. Their time and the size of their output are limited.
//!
//! Elsewhere: the template functions that call programs (engine `helmfile`).

use std::io::{self, Read, Write as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use golang::work_meter::StopSignal;
use helmfile::{ProgramCall, ProgramRunner};

/// The maximum output of a program, in bytes.
const MAX_OUTPUT_BYTES: u64 = 16 << 20;

/// The maximum size of a failed program's error text that windlass repeats, in bytes.
const MAX_STDERR_BYTES: u64 = 64 << 10;

/// How often windlass checks whether the time of the command is over.
const OUTPUT_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs programs of this machine.
pub(super) struct LocalProgramRunner {
    /// How long each program may take.
    limit: Option<Duration>,
    /// Ends the programs when the command ends.
    stop: StopSignal,
}

impl ProgramRunner for LocalProgramRunner {
    fn run(&self, program: &ProgramCall<'_>) -> Result<Vec<u8>, String> {
        let shown = format!("`{}`", program.command);
        let failed = |error: &io::Error| format!("{shown} cannot be run: {error}");
        let mut child = Command::new(program.command)
            .args(program.args)
            .envs(program.env.iter().map(|(name, value)| (name, value)))
            .current_dir(program.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&error))?;
        feed(&mut child, program.input);
        let output = child.stdout.take().map(|pipe| read(pipe, MAX_OUTPUT_BYTES + 1, false));
        let said = child.stderr.take().map(|pipe| read(pipe, MAX_STDERR_BYTES, true));
        let ended = self.await_all(&mut child, output).and_then(|output| {
            let status = child.wait().map_err(|error| failed(&error))?;
            Ok((output, status))
        });
        let (output, status) = ended.map_err(|problem| {
            // The program may have ended meanwhile.
            drop(child.kill());
            drop(child.wait());
            format!("{shown} {problem}")
        })?;
        if status.success() {
            return Ok(output);
        }
        // windlass does not wait for other processes that hold the pipe.
        let said = said.and_then(|said| said.recv_timeout(Duration::from_secs(1)).ok());
        let said = said.and_then(Result::ok).unwrap_or_default();
        Err(format!(
            "{shown} {}: {}",
            ended_with(status),
            String::from_utf8_lossy(&said).trim_end()
        ))
    }
}

impl LocalProgramRunner {
    /// Makes a runner. Each program may take `limit`, or any time if it is zero. Programs end with the command.
    pub(super) fn within(limit: Duration, stop: &StopSignal) -> Self {
        Self { limit: Some(limit).filter(|limit| !limit.is_zero()), stop: stop.clone() }
    }

    /// Waits for the output of a program, within its time limit.
    fn await_all(
        &self,
        child: &mut Child,
        output: Option<Receiver<io::Result<Vec<u8>>>>,
    ) -> Result<Vec<u8>, String> {
        let Some(output) = output else { return Ok(Vec::new()) };
        let begin = Instant::now();
        loop {
            match output.recv_timeout(OUTPUT_POLL_INTERVAL) {
                Ok(Ok(read)) if read.len() as u64 > MAX_OUTPUT_BYTES => {
                    return Err(format!("prints more than {MAX_OUTPUT_BYTES} bytes"));
                }
                Ok(Ok(read)) => return self.await_end(child, begin).map(|()| read),
                Ok(Err(error)) => return Err(format!("cannot be read: {error}")),
                Err(RecvTimeoutError::Timeout) => self.check(begin)?,
                Err(RecvTimeoutError::Disconnected) => return Ok(Vec::new()),
            }
        }
    }

    /// Waits for the end of a program that has closed its output.
    fn await_end(&self, child: &mut Child, begin: Instant) -> Result<(), String> {
        while child.try_wait().map_err(|error| format!("cannot be awaited: {error}"))?.is_none() {
            self.check(begin)?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn check(&self, begin: Instant) -> Result<(), String> {
        if self.stop.is_set() || self.limit.is_some_and(|limit| begin.elapsed() >= limit) {
            return Err("takes longer than --time-limit".to_owned());
        }
        Ok(())
    }
}

/// Writes the input of a program, which the program need not read.
fn feed(child: &mut Child, input: &[u8]) {
    let Some(mut pipe) = child.stdin.take() else { return };
    if !input.is_empty() {
        let input = input.to_vec();
        std::thread::spawn(move || drop(pipe.write_all(&input)));
    }
}

/// Reads a pipe up to a limit. With `drains`, further output is read and discarded.
fn read(
    mut pipe: impl Read + Send + 'static,
    limit: u64,
    drains: bool,
) -> Receiver<io::Result<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let mut done = pipe.by_ref().take(limit).read_to_end(&mut text).map(|_| ());
        if drains && done.is_ok() {
            done = io::copy(&mut pipe, &mut io::sink()).map(|_| ());
        }
        // After the time limit, the receiver no longer exists.
        drop(sender.send(done.map(|()| text)));
    });
    receiver
}

fn ended_with(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("ended with status {code}"),
        None => "was ended by a signal".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, input: &[u8], limit: u64) -> Result<String, String> {
        let programs = LocalProgramRunner {
            limit: Some(Duration::from_millis(limit)),
            stop: StopSignal::default(),
        };
        let args = ["-c".to_owned(), script.to_owned()];
        let env = [("GREETING".to_owned(), "hello".to_owned())];
        let program = ProgramCall { command: "sh", args: &args, env: &env, input, directory: "/" };
        programs.run(&program).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_program_gets_its_input_and_variables_and_gives_its_output() {
        assert_eq!(
            run("echo $GREETING; cat; pwd", b"input\n", 60_000).unwrap(),
            "hello\ninput\n/\n"
        );
        // The program does not read all of a long input.
        assert_eq!(run("head -c 1", &[b'x'; 1 << 20], 60_000).unwrap(), "x");
    }

    #[test]
    fn what_fails_or_does_not_end_is_an_error() {
        let error = run("echo no >&2; exit 3", b"", 60_000).unwrap_err();
        assert_eq!(error, "`sh` ended with status 3: no");
        assert!(run("sleep 60", b"", 100).unwrap_err().contains("--time-limit"));
        assert!(run("exec >&-; sleep 60", b"", 100).unwrap_err().contains("--time-limit"));
        assert!(run("yes", b"", 60_000).unwrap_err().contains("more than"));
        let nothing =
            ProgramCall { command: "/no/such", args: &[], env: &[], input: b"", directory: "/" };
        let programs = LocalProgramRunner { limit: None, stop: StopSignal::default() };
        assert!(programs.run(&nothing).unwrap_err().contains("`/no/such` cannot be run"));
    }
}
