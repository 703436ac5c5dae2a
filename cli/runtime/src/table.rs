//! Prints tables for people. Columns are as wide as needed, lines fit the terminal, and control characters are made visible.
//!
//! Elsewhere: escaping characters (`objects::clean_line`).

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use objects::clean_line;
use reconcile::Time;

/// A colour. It is never the only sign of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextColour {
    /// All is well.
    Good,
    /// Something failed.
    Bad,
    /// Something is in progress.
    Busy,
}

impl TextColour {
    fn code(self) -> u8 {
        match self {
            Self::Good => 32,
            Self::Bad => 31,
            Self::Busy => 33,
        }
    }

    /// The colour for a status of `Ready`. `None` for any other text.
    pub fn of_ready(status: &str) -> Option<Self> {
        match status {
            "True" => Some(Self::Good),
            "False" => Some(Self::Bad),
            "Unknown" => Some(Self::Busy),
            _ => None,
        }
    }
}

/// The properties of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalScreen {
    /// The characters of a line. `None` if the output is not a terminal.
    pub width: Option<usize>,
    /// Whether the output shows colours.
    pub is_coloured: bool,
}

impl TerminalScreen {
    /// The properties of standard output. Only a terminal has colours and a width.
    pub fn of_stdout() -> Self {
        let out = std::io::stdout();
        let is_terminal = out.is_terminal();
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty());
        let size = is_terminal.then(|| rustix::termios::tcgetwinsize(&out).ok()).flatten();
        let width = size.map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
        Self { width, is_coloured: is_terminal && !is_dumb && !is_plain }
    }

    /// Adds a colour to a text.
    pub fn paint(self, text: &str, colour: Option<TextColour>) -> String {
        match colour.filter(|_| self.is_coloured) {
            Some(colour) => format!("\u{1b}[{}m{text}\u{1b}[0m", colour.code()),
            None => text.to_owned(),
        }
    }

    /// Breaks a text into indented lines that fit the screen. A word that is too long stays whole. If the output is not a
    /// terminal, the text stays whole.
    pub fn wrapped(self, text: &str, indent: usize) -> String {
        let Some(width) = self.width else { return text.to_owned() };
        let most = width.saturating_sub(indent).max(20);
        let mut lines: Vec<String> = vec![String::new()];
        for word in text.split(' ') {
            let line = lines.last().map_or(0, |line| line.chars().count());
            match lines.last_mut() {
                Some(last) if line == 0 => last.push_str(word),
                Some(last) if line + 1 + word.chars().count() <= most => {
                    last.push(' ');
                    last.push_str(word);
                }
                _ => lines.push(word.to_owned()),
            }
        }
        lines.join(&format!("\n{}", " ".repeat(indent)))
    }
}

/// A table cell with a text.
#[derive(Debug, Clone)]
pub struct TableCell {
    text: String,
    colour: Option<TextColour>,
    is_vital: bool,
}

impl TableCell {
    /// Makes a cell from an untrusted text, and escapes control characters. An empty text becomes `-`.
    pub fn new(text: &str) -> Self {
        let text = clean(text);
        let text = if text.is_empty() { "-".to_owned() } else { text };
        Self { text, colour: None, is_vital: false }
    }

    /// Makes a cell like [`Self::new`], with a colour.
    pub fn coloured(text: &str, colour: Option<TextColour>) -> Self {
        Self { colour, ..Self::new(text) }
    }

    /// Marks the cell as vital. If it does not fit on a narrow screen, it gets its own line below.
    pub fn vital(self) -> Self {
        Self { is_vital: true, ..self }
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

/// A table that is printed page by page. Its columns never become narrower.
#[derive(Debug)]
pub struct PagedTable {
    titles: Vec<&'static str>,
    widths: Vec<usize>,
    screen: TerminalScreen,
    is_headed: bool,
}

/// The number of spaces between columns.
const COLUMN_GAP_CHARACTERS: usize = 2;
/// The minimum number of characters that a line needs for a vital text.
const MIN_VITAL_TEXT_CHARACTERS: usize = 24;
/// The end of a line whose last columns do not fit.
const LEFT_OUT: &str = " …";
/// The number of spaces before a cell on its own line.
const LINE_INDENT_CHARACTERS: usize = 4;

impl PagedTable {
    /// Makes an empty table whose columns have these titles.
    pub fn new(titles: &[&'static str], screen: TerminalScreen) -> Self {
        let widths = titles.iter().map(|title| title.len()).collect();
        Self { titles: titles.to_vec(), widths, screen, is_headed: false }
    }

    /// Leaves out the line with the titles.
    pub fn headless(self) -> Self {
        Self { is_headed: true, ..self }
    }

    /// The lines of a page. The titles come before the first page.
    pub fn page(&mut self, rows: &[Vec<TableCell>]) -> String {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let mut out = String::new();
        if !self.is_headed && !rows.is_empty() {
            self.is_headed = true;
            let titles: Vec<TableCell> =
                self.titles.iter().map(|title| TableCell::new(title)).collect();
            self.line(&titles, &mut out);
        }
        for row in rows {
            self.line(row, &mut out);
        }
        out
    }

    /// The width of a line for columns, and whether a sign has to show that columns are missing.
    fn room(&self) -> (usize, bool) {
        let most = self.screen.width.unwrap_or(usize::MAX);
        let before = self
            .widths
            .iter()
            .rev()
            .skip(1)
            .map(|width| width + COLUMN_GAP_CHARACTERS)
            .sum::<usize>();
        let is_cut = before >= most && most > LEFT_OUT.chars().count();
        (if is_cut { most - LEFT_OUT.chars().count() } else { most }, is_cut)
    }

    fn line(&self, row: &[TableCell], out: &mut String) {
        let mut used = 0;
        let mut gap = 0;
        let (most, is_cut) = self.room();
        let mut below = Vec::new();
        let mut leaves_out = false;
        for (at, cell) in row.iter().enumerate() {
            let left = most.saturating_sub(used + gap);
            if cell.is_vital && cell.width() > left && left < MIN_VITAL_TEXT_CHARACTERS {
                below.push((at, cell));
                continue;
            }
            if left == 0 {
                leaves_out |= is_cut;
                continue;
            }
            let text = cut(&cell.text, left);
            let width = text.chars().count();
            let _ = write!(out, "{:gap$}{}", "", self.screen.paint(&text, cell.colour));
            used += gap + width;
            gap = self.widths.get(at).map_or(0, |column| column.saturating_sub(width))
                + COLUMN_GAP_CHARACTERS;
        }
        let _ = writeln!(out, "{}", if leaves_out { LEFT_OUT } else { "" });
        for (at, cell) in below {
            let title = self.titles.get(at).map(|it| it.to_lowercase()).unwrap_or_default();
            let text =
                self.screen.wrapped(&format!("{title}: {}", cell.text), LINE_INDENT_CHARACTERS);
            let _ = writeln!(
                out,
                "{:LINE_INDENT_CHARACTERS$}{}",
                "",
                self.screen.paint(&text, cell.colour)
            );
        }
    }
}

/// Cuts a text after `most` characters, and marks the cut with an ellipsis.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let mut shorter: String = text.chars().take(most.saturating_sub(1)).collect();
    shorter.push('…');
    shorter
}

/// Cuts a text in the middle. The end matters, because the API server first repeats a value and then says what is wrong with
/// it.
pub fn cut_within(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let end = most / 3;
    let begin = most.saturating_sub(end + 1);
    let kept = text.chars().take(begin).chain(['…']).chain(text.chars().skip(length - end));
    kept.collect()
}

/// Puts a text on one line, escapes control characters, and removes blanks at its ends.
pub fn clean(text: &str) -> String {
    clean_line(text.trim())
}

/// The age of a time in its two largest units, as kubectl prints it.
pub fn age(since: Option<Time>, now: Time) -> String {
    let Some(since) = since else { return String::new() };
    let seconds = now.duration_since(since).as_secs().max(0);
    let minutes = seconds / 60;
    let hours = seconds / 3600;
    let days = seconds / 86_400;
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 && seconds % 60 > 0 => format!("{minutes}m{}s", seconds % 60),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 && minutes % 60 > 0 => format!("{hours}h{}m", minutes % 60),
        () if hours < 48 => format!("{hours}h"),
        () if days < 8 && hours % 24 > 0 => format!("{days}d{}h", hours % 24),
        () => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(width: usize) -> TerminalScreen {
        TerminalScreen { width: Some(width), is_coloured: false }
    }

    fn row(texts: &[&str]) -> Vec<TableCell> {
        texts.iter().map(|text| TableCell::new(text)).collect()
    }

    #[test]
    fn lines_are_no_wider_than_the_terminal() {
        let rows =
            [row(&["web", "True", "a long message that goes on"]), row(&["database", "False", ""])];
        for width in [1, 10, 20, 40, 80] {
            let text = PagedTable::new(&["NAME", "READY", "MESSAGE"], screen(width)).page(&rows);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        }
        let text = PagedTable::new(&["NAME", "READY", "MESSAGE"], screen(30)).page(&rows);
        assert_eq!(
            text,
            "NAME      READY  MESSAGE\nweb       True   a long messa…\ndatabase  False  -\n"
        );
    }

    #[test]
    fn a_line_says_that_columns_do_not_fit() {
        let rows = [row(&["web", "a-long-revision", "True"]), row(&["db", "b", "False"])];
        let text = PagedTable::new(&["NAME", "REVISION", "READY"], screen(18)).page(&rows);
        assert_eq!(text, "NAME  REVISION …\nweb   a-long-re… …\ndb    b …\n");
        let text = PagedTable::new(&["NAME", "REVISION", "READY"], screen(28)).page(&rows);
        assert!(!text.contains('…'), "{text}");
    }

    #[test]
    fn the_title_is_printed_once_and_columns_stay() {
        let mut table = PagedTable::new(&["NAME", "READY"], screen(80));
        assert_eq!(table.page(&[]), "");
        assert_eq!(
            table.page(&[row(&["a-long-name", "True"])]),
            "NAME         READY\na-long-name  True\n"
        );
        assert_eq!(table.page(&[row(&["b", "True"])]), "b            True\n");
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_printed() {
        assert_eq!(TableCell::new(" a\u{1b}[2J\r\nb\n").text, "a\\u{1b}[2J  b");
    }

    #[test]
    fn the_end_of_a_refusal_is_not_cut() {
        let long = format!("Job is invalid: {}: field is immutable", "x".repeat(1000));
        let short = cut_within(&long, 90);
        assert!(short.starts_with("Job is invalid: x") && short.ends_with("x: field is immutable"));
        assert_eq!((short.chars().count(), cut_within("äb", 2).as_str()), (90, "äb"));
    }

    #[test]
    fn colours_come_on_a_terminal_only() {
        let painted =
            TerminalScreen { width: None, is_coloured: true }.paint("True", Some(TextColour::Good));
        assert_eq!(painted, "\u{1b}[32mTrue\u{1b}[0m");
        assert_eq!(screen(80).paint("True", Some(TextColour::Good)), "True");
    }

    #[test]
    fn ages_are_those_of_kubectl() {
        let now: Time = "2026-11-24T12:00:00Z".parse().unwrap();
        let format =
            |seconds: i64| age(now.checked_sub(jiff::SignedDuration::from_secs(seconds)).ok(), now);
        let ages =
            [5, 119, 125, 3 * 60, 3600, 4 * 3600 + 60, 30 * 3600, 3 * 86_400 + 3600, 40 * 86_400];
        let expected = ["5s", "119s", "2m5s", "3m", "60m", "4h1m", "30h", "3d1h", "40d"];
        assert_eq!(ages.map(format), expected);
        assert_eq!(age(None, now), "");
    }
}
