//! The figures of the pages beside their goals, and what others published about theirs.
//!
//! This module has the tables and the JSON. `super` measures.

use serde_json::{Value, json};

use crate::audit_log::RequestCounts;
use crate::raw_client_comparison::FigureOutputFormat;
use crate::time_samples;
use testbed::progress::{bold, green, red};

/// A measured figure of the web pages, and its goal.
#[derive(Debug, Clone)]
pub(super) struct WebFigure {
    what: String,
    unit: &'static str,
    /// The highest figure that meets the goal. A figure without a goal is only reported.
    goal: Option<f64>,
    /// The figure. It is not a number if it could not be measured.
    measured: f64,
    /// Further results as text.
    note: String,
}

impl WebFigure {
    /// A figure without a goal.
    pub(super) fn new(what: impl Into<String>, unit: &'static str, measured: f64) -> Self {
        Self { what: what.into(), unit, goal: None, measured, note: String::new() }
    }

    /// Sets the highest figure that meets the goal.
    pub(super) fn with_goal(self, goal: f64) -> Self {
        Self { goal: Some(goal), ..self }
    }

    /// Adds a further result as text.
    pub(super) fn with_note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// Whether the figure meets its goal. A figure that is not a number meets no goal. `None` if the figure has no goal.
    fn is_met(&self) -> Option<bool> {
        self.goal.map(|goal| self.measured <= goal)
    }

    fn line(&self) -> String {
        let Self { what, unit, goal, measured, note } = self;
        let goal = goal.map_or("–".to_owned(), |it| format!("{it:.1}"));
        let verdict = match self.is_met() {
            Some(true) => green("met   "),
            Some(false) => red("missed"),
            None => "      ".to_owned(),
        };
        format!("{what:<62} {unit:<6} {goal:>8} {measured:>10.2}  {verdict}  {note}")
    }

    fn to_json(&self) -> Value {
        let Self { what, unit, goal, measured, note } = self;
        json!({"what": what, "unit": unit, "goal": goal, "measured": measured, "met": self.is_met(), "note": note})
    }
}

/// A figure that users or developers of another program published.
#[derive(Debug)]
struct PublishedFigure {
    program: &'static str,
    what: &'static str,
    figure: &'static str,
    source: &'static str,
}

/// The published figures of web pages for the same task. The numbers are those of the issues in the repositories.
const PUBLISHED: [PublishedFigure; 7] = [
    PublishedFigure {
        program: "Argo CD",
        what: "list of 8 000 applications until it is shown",
        figure: "35 s",
        source: "argoproj/argo-cd#9575",
    },
    PublishedFigure {
        program: "Argo CD",
        what: "list of 4 200 applications until it is shown",
        figure: "2 min",
        source: "argoproj/argo-cd#15276",
    },
    PublishedFigure {
        program: "Argo CD",
        what: "requests of the browser for each row of the list",
        figure: "2–3",
        source: "argoproj/argo-cd#15509",
    },
    PublishedFigure {
        program: "Argo CD",
        what: "tree of an application at which the browser freezes",
        figure: "900 nodes",
        source: "argoproj/argo-cd#14274",
    },
    PublishedFigure {
        program: "Argo CD",
        what: "live streams until the browser has no connection left",
        figure: "6",
        source: "argoproj/argo-cd#4269, #29448",
    },
    PublishedFigure {
        program: "Flux Operator",
        what: "files of the pages, raw",
        figure: "557 kB",
        source: "controlplaneio-fluxcd/flux-operator at 17c6aea, counted",
    },
    PublishedFigure {
        program: "Flux Operator",
        what: "files of the pages, compressed",
        figure: "156 kB",
        source: "controlplaneio-fluxcd/flux-operator at 17c6aea, counted",
    },
];

/// All figures of a measurement.
#[derive(Debug, Default)]
pub(super) struct WebReport {
    title: String,
    /// The load of the machine before the measurement.
    load: String,
    figures: Vec<WebFigure>,
    /// The requests to the API server while nothing happened.
    pub(super) idle: RequestCounts,
}

impl WebReport {
    /// A report without figures. `load` is the load of the machine before the measurement.
    pub(super) fn new(title: String, load: String) -> Self {
        Self { title, load, ..Self::default() }
    }

    /// Adds a measured figure to the report.
    pub(super) fn add(&mut self, figure: WebFigure) {
        self.figures.push(figure);
    }

    /// Whether all goals are met.
    pub(super) fn passes(&self) -> bool {
        self.figures.iter().all(|figure| figure.is_met() != Some(false))
    }

    /// Prints the report about the web pages, as a table or as JSON.
    #[expect(clippy::print_stdout, reason = "the table is what the command is for")]
    pub(super) fn print(&self, output: FigureOutputFormat) {
        if output == FigureOutputFormat::Json {
            println!("{}", self.to_json());
            return;
        }
        println!("\n{}", bold(&self.title));
        let [what, unit, goal, measured] = ["figure", "unit", "goal", "measured"];
        println!("{what:<62} {unit:<6} {goal:>8} {measured:>10}");
        self.figures.iter().for_each(|figure| println!("{}", figure.line()));
        println!("\n{}", bold("requests to the API server while nothing happened"));
        for (purpose, verb, resource, tally) in self.idle.iter() {
            let purpose = format!("{purpose:?}");
            println!("{purpose:<9} {verb:<8} {resource:<44} {:>8}", tally.count);
        }
        println!("\n{}", bold("what others published, with other hardware and other objects"));
        for PublishedFigure { program, what, figure, source } in PUBLISHED {
            println!("{program:<14} {what:<56} {figure:>10}  {source}");
        }
        time_samples::print_machine(&self.load);
    }

    fn to_json(&self) -> Value {
        let figures: Vec<Value> = self.figures.iter().map(WebFigure::to_json).collect();
        let request = |(purpose, verb, resource, tally)| json!({"purpose": purpose, "verb": verb, "resource": resource, "tally": tally});
        let requests: Vec<Value> = self.idle.iter().map(request).collect();
        let published: Vec<Value> = PUBLISHED
            .iter()
            .map(|it| {
                json!({"program": it.program, "what": it.what, "figure": it.figure, "source": it.source})
            })
            .collect();
        json!({"title": self.title, "load": self.load, "figures": figures, "idleRequests": requests,
            "published": published})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(figure: WebFigure) -> WebReport {
        let mut report = WebReport::default();
        report.add(figure);
        report
    }

    #[test]
    fn a_goal_is_met_at_its_limit_and_not_by_what_was_not_measured() {
        let figure = |measured| WebFigure::new("memory", "MiB", measured);
        assert!(report(figure(f64::NAN)).passes(), "a figure without a goal is only reported");
        assert!(report(figure(16.0).with_goal(16.0)).passes());
        assert!(!report(figure(16.1).with_goal(16.0)).passes());
        assert!(!report(figure(f64::NAN).with_goal(16.0)).passes());
    }

    #[test]
    fn the_document_has_each_figure_and_what_others_published() {
        let figure = WebFigure::new("memory", "MiB", 17.0).with_goal(16.0).with_note("of one user");
        let document = report(figure).to_json();
        assert_eq!(document["figures"][0]["met"], false);
        assert_eq!(document["figures"][0]["note"], "of one user");
        assert_eq!(document["published"][0]["source"], "argoproj/argo-cd#9575");
    }
}
