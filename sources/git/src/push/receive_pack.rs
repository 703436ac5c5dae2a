//! The protocol of `git-receive-pack` as bytes: commands, push options, and the server's report.
//!
//! Source: `gitprotocol-pack` of Git, "Pushing Data To a Server".
//! Elsewhere: the connection (`git_connection`), choosing commands and using the report (`workspace`).

use std::collections::BTreeSet;

use gix::hash::ObjectId;

use super::error::RejectedReference;

/// The longest line of the protocol, with its length.
const LONGEST_LINE: usize = 65_520;
/// Commands of one push.
pub(super) const MOST_COMMANDS: usize = 64;
/// Bytes of a push option or the name of a reference.
pub(super) const LONGEST_TEXT: usize = 4096;
/// Push options of one push.
pub(super) const MOST_OPTIONS: usize = 64;

/// A reference that is created or moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReferenceCommand {
    /// The present commit of the reference. `None` if the reference is new. The server refuses the command if the reference is
    /// elsewhere.
    pub(super) old: Option<ObjectId>,
    pub(super) new: ObjectId,
    /// The full name of the reference.
    pub(super) name: String,
}

/// The capabilities that both the client and the server support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NegotiatedCapabilities {
    /// Whether the answer has bands: one for the report, and one for the messages of hooks.
    pub(super) is_banded: bool,
    /// All commands or none.
    pub(super) is_atomic: bool,
    /// The server reports no progress.
    pub(super) is_quiet: bool,
    /// The server wants to hear that hashes are SHA-1.
    pub(super) has_object_format: bool,
    pub(super) has_push_options: bool,
    pub(super) has_agent: bool,
}

impl NegotiatedCapabilities {
    fn capabilities(self, agent: &str) -> String {
        let agent = format!("agent={agent}");
        let all = [
            (true, "report-status"),
            (self.is_banded, "side-band-64k"),
            (self.is_atomic, "atomic"),
            (self.is_quiet, "quiet"),
            (self.has_push_options, "push-options"),
            (self.has_object_format, "object-format=sha1"),
            (self.has_agent, agent.as_str()),
        ];
        let agreed = all.iter().filter(|(is_agreed, _)| *is_agreed).map(|(_, name)| *name);
        agreed.map(|name| format!(" {name}")).collect()
    }
}

fn push_line(lines: &mut Vec<u8>, text: &[u8]) {
    lines.extend(format!("{:04x}", text.len() + 4).into_bytes());
    lines.extend(text);
}

/// The bytes of a push request.
pub(super) fn request(
    commands: &[ReferenceCommand],
    agreement: NegotiatedCapabilities,
    agent: &str,
    options: &[String],
    pack: &[u8],
) -> Vec<u8> {
    let mut request = Vec::with_capacity(pack.len() + 4096);
    let null = gix::hash::Kind::Sha1.null();
    for (number, command) in commands.iter().enumerate() {
        let ReferenceCommand { old, new, name } = command;
        let old = old.unwrap_or(null);
        let mut line = format!("{old} {new} {name}");
        if number == 0 {
            line.push('\0');
            line.push_str(&agreement.capabilities(agent));
        }
        push_line(&mut request, line.as_bytes());
    }
    request.extend(b"0000");
    if agreement.has_push_options {
        options.iter().for_each(|option| push_line(&mut request, option.as_bytes()));
        request.extend(b"0000");
    }
    request.extend(pack);
    request
}

/// The report of the server about a push.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PushStatusReport {
    /// The reason why the pack could not be stored.
    pub(super) unpack_error: Option<String>,
    pub(super) updated: Vec<String>,
    pub(super) rejected: Vec<RejectedReference>,
}

/// Parses a report on commands. It has to report on the pack and exactly once on each command, on no other reference, and
/// without contradiction. Otherwise the result is `None`, because the rest of such a report is not reliable either.
///
/// If the pack could not be stored, no reference was updated, whether or not the report says that of each one.
///
/// In bands, the lines have length prefixes. Without bands, the reader has removed the prefixes.
pub(super) fn report(
    bytes: &[u8],
    is_banded: bool,
    commands: &[ReferenceCommand],
) -> Option<PushStatusReport> {
    let lines = match is_banded {
        true => lines(bytes)?,
        false => bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect(),
    };
    let mut lines = lines.into_iter().map(|line| String::from_utf8_lossy(line.trim_ascii_end()));
    let unpacked = lines.next()?;
    let unpacked = unpacked.strip_prefix("unpack ")?;
    let unpack_error = Some(unpacked.to_owned()).filter(|said| said != "ok");
    let mut report = PushStatusReport { unpack_error, ..PushStatusReport::default() };
    let mut reported = BTreeSet::new();
    for line in lines {
        let (kind, rest) = line.split_once(' ')?;
        // More on the reference before it, which was not asked for.
        if kind == "option" {
            continue;
        }
        let (name, reason) = rest.split_once(' ').unwrap_or((rest, ""));
        let name = name.to_owned();
        let is_asked = commands.iter().any(|command| command.name == name);
        if !is_asked || !reported.insert(name.clone()) {
            return None;
        }
        match kind {
            "ok" if reason.is_empty() => report.updated.push(name),
            "ng" => report.rejected.push(RejectedReference { name, reason: reason.to_owned() }),
            _ => return None,
        }
    }
    let is_believed = match report.unpack_error {
        Some(_) => report.updated.is_empty(),
        None => reported.len() == commands.len(),
    };
    is_believed.then_some(report)
}

/// The lines before a flush packet. `None` if they are cut off or invalid.
fn lines(mut bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut lines = Vec::new();
    loop {
        let (length, _) = bytes.split_at_checked(4)?;
        let length = usize::from_str_radix(std::str::from_utf8(length).ok()?, 16).ok()?;
        match length {
            0 => return Some(lines),
            5..=LONGEST_LINE => {
                let (line, rest) = bytes.split_at_checked(length)?;
                lines.push(line.get(4..)?);
                bytes = rest;
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: NegotiatedCapabilities = NegotiatedCapabilities {
        is_banded: false,
        is_atomic: false,
        is_quiet: false,
        has_object_format: false,
        has_push_options: false,
        has_agent: false,
    };

    fn command(name: &str) -> ReferenceCommand {
        let new = ObjectId::from_hex(&[b'1'; 40]).unwrap();
        ReferenceCommand { old: None, new, name: name.to_owned() }
    }

    #[test]
    fn the_first_command_carries_the_capabilities_and_the_pack_follows_the_flush() {
        let commands = [command("refs/heads/a"), command("refs/heads/b")];
        let said = request(&commands, NONE, "x", &[], b"PACK");
        let old = "0".repeat(40);
        let new = "1".repeat(40);
        let expected = format!(
            "0071{old} {new} refs/heads/a\0 report-status0062{old} {new} refs/heads/b0000PACK"
        );
        assert_eq!(String::from_utf8(said).unwrap(), expected);
    }

    #[test]
    fn push_options_stand_between_the_commands_and_the_pack() {
        let all = NegotiatedCapabilities {
            is_banded: true,
            is_atomic: true,
            is_quiet: true,
            has_object_format: true,
            has_push_options: true,
            has_agent: true,
        };
        let options = ["ci.skip".to_owned()];
        let said = request(&[command("refs/heads/a")], all, "git/x", &options, b"PACK");
        let said = String::from_utf8(said).unwrap();
        let capabilities = "\0 report-status side-band-64k atomic quiet push-options object-format=sha1 agent=git/x0000";
        assert!(said.contains(capabilities), "{said}");
        assert!(said.ends_with("0000000bci.skip0000PACK"), "{said}");
    }

    #[test]
    fn a_report_must_be_whole_and_name_every_reference() {
        let commands = [command("refs/heads/a"), command("refs/heads/b")];
        let read = |bytes: &[u8]| report(bytes, true, &commands);
        let whole =
            b"000eunpack ok\n0014ok refs/heads/a\n0029ng refs/heads/b pre-receive declined\n0000";
        let said = read(whole).unwrap();
        assert_eq!(said.unpack_error, None);
        assert_eq!(said.updated, ["refs/heads/a"]);
        assert_eq!(said.rejected[0].name, "refs/heads/b");
        assert_eq!(said.rejected[0].reason, "pre-receive declined");
        for end in 0..whole.len() {
            assert_eq!(read(&whole[..end]), None, "{end}");
        }
        assert_eq!(read(b"000eunpack ok\n0014ok refs/heads/a\n0000"), None);
        assert_eq!(read(b"0014ok refs/heads/a\n0000"), None);
        let bare = b"unpack ok\nok refs/heads/a\nok refs/heads/b\n";
        assert_eq!(report(bare, false, &commands).unwrap().updated.len(), 2);
    }

    #[test]
    fn a_report_that_contradicts_itself_or_the_commands_is_not_believed() {
        let commands = [command("refs/heads/a")];
        let read = |text: &str| report(text.as_bytes(), false, &commands);
        for lie in [
            "unpack ok\n",
            "unpack ok\nok refs/heads/b\n",
            "unpack ok\nok refs/heads/a\nok refs/heads/b\n",
            "unpack ok\nok refs/heads/a\nok refs/heads/a\n",
            "unpack ok\nok refs/heads/a\nng refs/heads/a no\n",
            "unpack ok\nok refs/heads/a but not now\n",
            "unpack disk full\nok refs/heads/a\n",
            "unpack ok\nmaybe refs/heads/a\n",
        ] {
            assert_eq!(read(lie), None, "{lie}");
        }
        let failed = read("unpack disk full\n").unwrap();
        assert_eq!(failed.unpack_error.as_deref(), Some("disk full"));
        assert_eq!(failed.updated, Vec::<String>::new());
    }
}
