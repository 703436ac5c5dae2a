//! What pages look like: widths on a phone, the rules of axe-core (WCAG 2.2 A and AA), and the boxes of the frame.
//!
//! Boxes are compared with recorded ones, in whole CSS pixels. Only such sizes are recorded that do not depend on names, times
//! and the number of objects.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use testbed::binaries::packages;

use super::browser_fixture::BrowserFixture;
use super::chromium::{Chromium, DESK_SIZE, PHONE_SIZE};

/// The environment variable with which the boxes are recorded instead of compared.
const RECORD_VARIABLE: &str = "WINDLASS_RECORD_BOXES";

/// How far an edge may be from the recorded one. Fonts round differently.
const TOLERANCE_PIXELS: i64 = 1;

/// The elements that are wider than the window. Those that scroll within a box of their own do not count.
const TOO_WIDE: &str = r#"
const root = document.scrollingElement;
if (root.scrollWidth <= root.clientWidth) return [];
const scrolling = ".wide, .canvas, .tabs, pre";
const wide = [...document.body.querySelectorAll("*")].filter((it) =>
  it.getBoundingClientRect().right > root.clientWidth + 1 && !it.closest(scrolling));
const named = wide.slice(0, 5).map((it) => it.tagName + "." + (it.getAttribute("class") ?? ""));
return ["is " + root.scrollWidth + " wide instead of " + root.clientWidth + ": " + named.join(", ")];
"#;

/// The violations of rules with their elements, as a list of texts. `{only}` stands for the rules.
const AXE_VIOLATIONS: &str = r#"
const done = arguments[arguments.length - 1];
const said = (found) => found.violations.flatMap((it) => it.nodes.map((node) => it.id + ": " + node.html.slice(0, 200)));
axe.run(document, { resultTypes: ["violations"], runOnly: {only} }).then((it) => done(said(it)), (error) => done([String(error)]));
"#;

const ALL_RULES: &str =
    r#"{ type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"] }"#;

const CONTRAST_RULE: &str = r#"{ type: "rule", values: ["color-contrast"] }"#;

/// The boxes of elements. The arguments are pairs of a selector and the fields of its box.
const ELEMENT_BOXES: &str = r#"
return Object.fromEntries(arguments[0].map(([selector, fields]) => {
  const box = document.querySelector(selector)?.getBoundingClientRect();
  return [selector, box ? fields.split(" ").map((it) => Math.round(box[it])) : null];
}));
"#;

/// A selector, and which fields of its box are compared.
type LayoutBoxFields = (&'static str, &'static str);

/// The elements that each page has.
const FRAME_ELEMENTS: [LayoutBoxFields; 8] = [
    (".rail", "x y width height"),
    (".brand", "x y width"),
    (".rail nav", "x width height"),
    (".rail nav a[aria-current]", "x width height"),
    (".top", "x y width height"),
    (".find input", "height"),
    ("main", "x y width"),
    (".cmd", "x width"),
];

/// Pages by the names of their records. `{app}` stands for the page of an object.
const RECORDED_PAGES: [(&str, &str, &[LayoutBoxFields]); 4] = [
    (
        "overview",
        "/",
        &[
            (".share", "x width height"),
            (".cols > .stack:first-child", "x width"),
            (".cols > .stack:last-child", "x width"),
        ],
    ),
    (
        "objects",
        "/objects",
        &[
            (".filters", "x width"),
            (".filters select[name=state]", "height"),
            ("main .panel", "x width"),
            (".list thead tr", "height"),
        ],
    ),
    (
        "object",
        "{app}",
        &[
            (".head h1", "x y height"),
            (".tabs", "x width height"),
            (".acts", "x width height"),
            (".cols > .stack:first-child", "x width"),
            (".facts", "x width"),
        ],
    ),
    (
        "calendar",
        "/calendar",
        &[(".cols > .stack:first-child", "x width"), (".cols > .stack:last-child", "x width")],
    ),
];

/// Says whether the open page is wider than the window.
pub(super) async fn too_wide(chromium: &Chromium) -> Result<Option<String>> {
    let found = chromium.read(TOO_WIDE, vec![]).await?;
    Ok(found.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).next())
}

/// The pages whose rules are checked. With `--thorough`, these are all.
fn examined(site: &BrowserFixture<'_>) -> Vec<String> {
    if cfg!(feature = "thorough") {
        return site.paths();
    }
    let object = |tab: &str| format!("{}{tab}", site.object("app"));
    let mut paths = ["/", "/objects", "/calendar", "/me"].map(str::to_owned).to_vec();
    paths.extend(["", "/graph", "/yaml"].map(object));
    paths.push(site.object("broken"));
    paths.push(format!("/c/{}", site.commit));
    paths
}

/// No page violates a rule of WCAG 2.2 A or AA in light colours, or the rule of contrast in dark ones. With `--thorough`, phones
/// count, too, and there is a picture of each page.
pub(super) async fn accessible_to_all(site: &BrowserFixture<'_>) -> Result<()> {
    let program = tokio::task::block_in_place(|| packages("axe-core"))?;
    let program = std::fs::read_to_string(program.join("axe-core/axe.min.js"))?;
    let mut faults = Vec::new();
    for path in examined(site) {
        site.show(&path).await?;
        site.chromium.read(&program, vec![]).await?;
        faults.extend(violations(site, &path, ALL_RULES).await?);
        keep_picture(site, &format!("light {path}")).await?;
        site.chromium.darken(true).await?;
        let in_dark = violations(site, &format!("{path} in dark"), CONTRAST_RULE).await;
        keep_picture(site, &format!("dark {path}")).await?;
        site.chromium.darken(false).await?;
        faults.extend(in_dark?);
        if cfg!(feature = "thorough") {
            site.chromium.resize(PHONE_SIZE).await?;
            faults.extend(violations(site, &format!("{path} on a phone"), ALL_RULES).await?);
            keep_picture(site, &format!("phone {path}")).await?;
            site.chromium.resize(DESK_SIZE).await?;
        }
    }
    ensure!(faults.is_empty(), "{} violations:\n{}", faults.len(), faults.join("\n"));
    Ok(())
}

async fn violations(site: &BrowserFixture<'_>, page: &str, only: &str) -> Result<Vec<String>> {
    let found = site.chromium.read_later(&AXE_VIOLATIONS.replace("{only}", only), vec![]).await?;
    let found = found.as_array().with_context(|| format!("{page}: {found}"))?;
    Ok(found.iter().map(|it| format!("{page}: {it}")).collect())
}

async fn keep_picture(site: &BrowserFixture<'_>, name: &str) -> Result<()> {
    if cfg!(feature = "thorough") {
        site.chromium.picture(name).await?;
    }
    Ok(())
}

/// The boxes of four pages are the recorded ones.
pub(super) async fn boxes_are_the_recorded_ones(site: &BrowserFixture<'_>) -> Result<()> {
    let mut faults = Vec::new();
    for (name, path, more) in RECORDED_PAGES {
        site.show(&path.replace("{app}", &site.object("app"))).await?;
        let wanted: Vec<&LayoutBoxFields> = FRAME_ELEMENTS.iter().chain(more).collect();
        let found = site.chromium.read(ELEMENT_BOXES, vec![serde_json::to_value(&wanted)?]).await?;
        let found: BTreeMap<String, Option<Vec<i64>>> = serde_json::from_value(found)?;
        faults.extend(compared(name, &found)?);
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    Ok(())
}

/// Compares boxes with their record. If there is no record, it is written, and that is a fault.
fn compared(name: &str, found: &BTreeMap<String, Option<Vec<i64>>>) -> Result<Vec<String>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/browser/boxes");
    let path = folder.join(format!("{name}.json"));
    if std::env::var_os(RECORD_VARIABLE).is_some() || !path.is_file() {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(&path, format!("{}\n", serde_json::to_string_pretty(found)?))?;
        return Ok(vec![format!(
            "{} is new: check the recorded boxes and commit it",
            path.display()
        )]);
    }
    let recorded = std::fs::read_to_string(&path)?;
    let recorded: BTreeMap<String, Option<Vec<i64>>> = serde_json::from_str(&recorded)?;
    let is_near = |one: &Option<Vec<i64>>, other: &Option<Vec<i64>>| match (one, other) {
        (Some(one), Some(other)) => {
            let mut pairs = one.iter().zip(other);
            one.len() == other.len()
                && pairs.all(|(one, other)| (one - other).abs() <= TOLERANCE_PIXELS)
        }
        _ => one == other,
    };
    let names = found.keys().chain(recorded.keys().filter(|it| !found.contains_key(*it)));
    let differs = names.filter(|selector| {
        let pair = (found.get(*selector), recorded.get(*selector));
        !matches!(pair, (Some(found), Some(recorded)) if is_near(found, recorded))
    });
    let describe = |selector: &String| {
        let of = |boxes: &BTreeMap<String, Option<Vec<i64>>>| format!("{:?}", boxes.get(selector));
        format!(
            "{name}, {selector}: {} instead of {} ({RECORD_VARIABLE}=1 records)",
            of(found),
            of(&recorded)
        )
    };
    Ok(differs.map(describe).collect())
}
