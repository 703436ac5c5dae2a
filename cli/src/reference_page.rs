//! Generates `docs/cli.md` from the help of the commands, so both always agree.
//!
//! `UPDATE_EXPECT=1 cargo test -p windlass-cli page` writes the page.

use expect_test::expect_file;

use super::{command, help};
use windlass_cli_runtime::exit_code::ExitCode;

/// Commands that are documented on other pages, with those pages.
const ELSEWHERE: [(&str, &str); 3] = [
    ("helmfile", "[helmfile.md](helmfile.md)"),
    ("serve", "[running.md](running.md)"),
    ("template", "`helm template`"),
];

const BEGIN: &str = "# The command line

<!-- Generated from the help of the commands: UPDATE_EXPECT=1 cargo test -p windlass-cli page -->

`windlass VERB KIND[/NAME]`: a kind is written as its name, its plural or its short name (`kustomization`, `kustomizations`, `ks`), with `.group` where another kind has the same name; `all`, `sources` and `appliers` stand for several. `KIND/NAMESPACE/NAME`, as messages have it, works as well.
`-n` is the namespace of the objects that a command is about. `bootstrap`, `check`, `crd`, `install`, `migrate` and `uninstall` are about windlass itself: their `-n` is the namespace of windlass, which is `--flux-namespace` for `logs`.
Other kinds of the cluster can be named wherever an object is read, such as `windlass why deployment/web`.
The program also works as a plugin of kubectl, if it is installed as `kubectl-windlass`.
Command lines of `flux` are understood where windlass does the same: `-n` before the verb, `get sources git`, `get image policy`, `reconcile source git app`, `alert-providers`, `events --for`, `trace --kind`; others are answered with the command that does it.

Tables are cut to the terminal, and a line whose last columns do not fit ends with `…`; elsewhere, lines are whole. Colors are used on a terminal only, not if `$NO_COLOR` is set, and nothing is said by them alone. Control characters of names, messages and logs are printed as `\\u{1b}`.
Objects that you may not read are omitted and listed on stderr; nothing is concluded from their absence.

";

/// The meanings of exit codes, except for commands that follow another program.
const EXIT_CODES: [(ExitCode, &str); 4] = [
    (ExitCode::Success, "success"),
    (
        ExitCode::ProblemsFound,
        "something was found: `why` has a cause, `changes` a change that failed, `check` a failure, `diff`, `image plan`, `plan --detailed-exitcode`, `plan facts --check` and `resume --plan` a change, `crd diff` and `crd restore` an object that does not fit",
    ),
    (ExitCode::Failed, "wrong usage, or the command failed, also if only in part"),
    (ExitCode::ClusterUnreachable, "the cluster cannot be reached, or did not respond at first"),
];

const AFTER_EXIT_CODES: &str = "
`build` of a directory, `template` and `helmfile` have the exit status of the programs that they follow.
";

/// The text of the page.
fn page() -> String {
    let mut out = format!("{BEGIN}| exit status | meaning |\n|---|---|\n");
    for (code, meaning) in EXIT_CODES {
        out.push_str(&format!("| {} | {meaning} |\n", code.number()));
    }
    out.push_str(AFTER_EXIT_CODES);
    for subcommand in command().get_subcommands() {
        let name = subcommand.get_name();
        out.push_str(&format!("\n## windlass {name}\n\n"));
        match ELSEWHERE.iter().find(|(it, _)| *it == name) {
            Some((_, page)) => {
                let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
                out.push_str(&format!("{about}: see {page} and `windlass {name} --help`.\n"));
            }
            None => out.push_str(&format!("```text\n{}\n```\n", trimmed(&help(name)))),
        }
    }
    out
}

/// Removes spaces at the ends of lines.
fn trimmed(text: &str) -> String {
    text.trim_end().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_page_of_the_command_line_is_its_help() {
    expect_file!["../../docs/cli.md"].assert_eq(&page());
}
