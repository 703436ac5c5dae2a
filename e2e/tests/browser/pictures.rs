//! Pictures of pages, compared with recorded ones: a column that moved, a colour that is gone, a text that covers another one.
//!
//! A recorded picture has a quarter of the width and the height, and sixteen greys: small, and still different if a column has
//! moved. What differs from run to run (names, times, digests, addresses) gets a fixed text before a picture is taken. Chromium
//! itself decodes and compares the pictures.
//! Elsewhere: the sizes of single elements, and the rules of accessibility (`layout.rs`).

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Value, json};

use super::browser_fixture::BrowserFixture;
use super::chromium::{DESK_SIZE, PHONE_SIZE, WindowSize};

/// The environment variable with which the pictures are recorded instead of compared.
const RECORD_VARIABLE: &str = "WINDLASS_RECORD_PICTURES";

/// Which share of the pixels may differ from the recorded picture.
const MAX_DIFFERING_SHARE: f64 = 0.01;

/// Fonts, animations and the pointer, so that a page always looks the same. A style sheet made by a script is not subject to the
/// Content-Security-Policy.
const FIX_STYLE: &str = r#"
const sheet = new CSSStyleSheet();
sheet.replaceSync(`
  :root { --sans: "DejaVu Sans" !important; --mono: "DejaVu Sans Mono" !important; }
  *, *::before, *::after { animation: none !important; transition: none !important; caret-color: transparent !important;
    pointer-events: none !important; }
`);
document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
document.activeElement?.blur();
scrollTo(0, 0);
"#;

/// Gives what differs from run to run a fixed text. The arguments are pairs of a text and what replaces it.
const FIX_TEXTS: &str = r#"
for (const stream of window.streams) stream.close();
for (const time of document.querySelectorAll("time")) {
  time.removeAttribute("title");
  time.textContent = "1m";
}
const live = document.getElementById("live");
if (live) live.textContent = "● Live";
const fixed = [
  ...arguments[0],
  [/\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?Z?/g, "2026-01-01T00:00:00Z"],
  [/\d\d:\d\d:\d\d/g, "00:00:00"],
  [/127\.0\.0\.1:\d+/g, "127.0.0.1:1"],
  [/-[bcdfghjklmnpqrstvwxz2-9]{8,10}-[bcdfghjklmnpqrstvwxz2-9]{5}\b/g, "-0000000000-00000"],
  [/-[bcdfghjklmnpqrstvwxz2-9]{8,10}\b/g, "-0000000000"],
  [/\b[0-9a-f]{7,64}\b/g, (digits) => "0".repeat(digits.length)],
  [/\b\d+(\.\d+)?(ms|[smhd])([\d.]+(ms|[smhd]))*\b/g, "1m"],
];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode;
  const text = fixed.reduce((text, [from, to]) => text.replaceAll(from, to), node.data);
  if (text !== node.data) node.data = text;
}
return document.fonts.ready.then(() => true);
"#;

/// Moves the columns of a page, as a mistake in the style sheet would.
const MOVE_COLUMNS: &str = r#"
for (const element of document.querySelectorAll(".cols")) element.style.transform = "translateX(16px)";
"#;

/// Makes a small picture with few greys, and compares it with another small picture. The arguments are the PNG of the whole
/// page, and the small PNG or null, both in Base64. The value has the small PNG, and the share of pixels that differ. It is null
/// if there is nothing to compare with, and 1 if the sizes differ.
const COMPARE_PICTURES: &str = r#"
const [whole, recorded] = arguments;
const done = arguments[arguments.length - 1];
const SHRINKING = 4;
const GREY_STEP = 17;
const SEEN_CHANGE = 2 * GREY_STEP;
const read = async (png, shrinking) => {
  const image = new Image();
  image.src = "data:image/png;base64," + png;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.width;
  canvas.height = image.height;
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const { data } = context.getImageData(0, 0, image.width, image.height);
  const width = Math.floor(image.width / shrinking);
  const height = Math.floor(image.height / shrinking);
  const greys = new Uint8ClampedArray(width * height);
  for (let at = 0; at < greys.length; at += 1) {
    const left = (at % width) * shrinking;
    const top = Math.floor(at / width) * shrinking;
    let sum = 0;
    for (let y = top; y < top + shrinking; y += 1)
      for (let x = left; x < left + shrinking; x += 1) {
        const pixel = 4 * (y * image.width + x);
        sum += 0.299 * data[pixel] + 0.587 * data[pixel + 1] + 0.114 * data[pixel + 2];
      }
    greys[at] = Math.round(sum / (shrinking * shrinking) / GREY_STEP) * GREY_STEP;
  }
  return { width, height, greys };
};
const drawn = ({ width, height, greys }) => {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  greys.forEach((grey, at) => image.data.set([grey, grey, grey, 255], 4 * at));
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas.toDataURL("image/png").split(",")[1];
};
const compare = async () => {
  const small = await read(whole, SHRINKING);
  const png = drawn(small);
  if (recorded === null) return { png, differing: null };
  const before = await read(recorded, 1);
  if (before.width !== small.width || before.height !== small.height) return { png, differing: 1 };
  const others = small.greys.filter((grey, at) => Math.abs(grey - before.greys[at]) > SEEN_CHANGE);
  return { png, differing: others.length / small.greys.length };
};
compare().then(done, (error) => done({ error: String(error) }));
"#;

/// The window and the colours in which a page is shown.
#[derive(Debug, Clone, Copy)]
struct PageView {
    name: &'static str,
    size: WindowSize,
    is_dark: bool,
}

const LIGHT_VIEW: PageView = PageView { name: "light", size: DESK_SIZE, is_dark: false };
const DARK_VIEW: PageView = PageView { name: "dark", size: DESK_SIZE, is_dark: true };
const PHONE_VIEW: PageView = PageView { name: "phone", size: PHONE_SIZE, is_dark: false };

/// Pages by the names of their pictures. `{app}` and `{broken}` stand for the pages of two objects. The first four have pictures
/// in each run.
const PICTURED_PAGES: [(&str, &str); 8] = [
    ("overview", "/"),
    ("objects", "/objects"),
    ("object-that-fails", "{broken}"),
    ("graph", "{app}/graph"),
    ("object", "{app}"),
    ("incidents", "/incidents"),
    ("approvals", "/approvals"),
    ("me", "/me"),
];

/// How many pages have pictures without `--thorough`.
const ALWAYS_PICTURED: usize = 4;

/// A picture of a page before it is compared.
struct TakenPicture {
    /// The name of the file with the recorded picture, without its ending.
    name: String,
    /// The whole picture as PNG.
    png: Vec<u8>,
}

/// A picture with a quarter of the size, beside the recorded one.
struct ComparedPicture {
    small_png: Vec<u8>,
    /// Which share of the pixels differs. `None` if nothing is recorded.
    differing: Option<f64>,
}

/// The pages look as they are recorded: four of them in light colours on a desk, and with `--thorough` eight pages in light and
/// dark colours and on a phone.
pub(super) async fn pages_look_as_recorded(site: &BrowserFixture<'_>) -> Result<()> {
    let thorough = [LIGHT_VIEW, DARK_VIEW, PHONE_VIEW];
    let (pages, views) = match cfg!(feature = "thorough") {
        true => (PICTURED_PAGES.len(), thorough.len()),
        false => (ALWAYS_PICTURED, 1),
    };
    let mut taken = Vec::new();
    for view in thorough.iter().take(views) {
        for (name, path) in PICTURED_PAGES.iter().take(pages) {
            let png = take(site, path, *view, false).await;
            // The other steps have light colours. Each step sets the size itself.
            site.chromium.darken(false).await?;
            taken.push(TakenPicture { name: format!("{name}-{}", view.name), png: png? });
        }
    }
    let moved = take(site, "/", LIGHT_VIEW, true).await?;
    // Pages of windlass load no pictures of a script.
    site.chromium.open("about:blank").await?;
    let mut faults = Vec::new();
    for picture in &taken {
        faults.extend(fault_of(site, picture).await?);
    }
    ensure!(faults.is_empty(), "{}", faults.join("\n"));

    let overview = taken.first().context("a picture")?;
    let small = compared(site, &overview.png, None).await?.small_png;
    let differing = compared(site, &moved, Some(&small)).await?.differing.unwrap_or_default();
    ensure!(differing > MAX_DIFFERING_SHARE, "moved columns change only {differing} of the pixels");
    Ok(())
}

/// Takes a picture of a page whose texts are fixed.
async fn take(
    site: &BrowserFixture<'_>,
    path: &str,
    view: PageView,
    moves_columns: bool,
) -> Result<Vec<u8>> {
    let chromium = &site.chromium;
    chromium.resize(view.size).await?;
    chromium.darken(view.is_dark).await?;
    let path = path.replace("{app}", &site.object("app"));
    site.show(&path.replace("{broken}", &site.object("broken"))).await?;
    chromium.await_true("!document.body.dataset.live || window.openStreams() > 0").await?;
    chromium.read(FIX_STYLE, vec![]).await?;
    let names = json!([[site.story.namespace, "browser-apps"]]);
    chromium.read(FIX_TEXTS, vec![names]).await?;
    if moves_columns {
        chromium.read(MOVE_COLUMNS, vec![]).await?;
    }
    chromium.screenshot().await
}

/// Compares a picture with the recorded one. If there is none, it is written, and that is a fault.
async fn fault_of(site: &BrowserFixture<'_>, picture: &TakenPicture) -> Result<Option<String>> {
    let TakenPicture { name, png } = picture;
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/browser/pictures");
    let path = folder.join(format!("{name}.png"));
    let is_new = std::env::var_os(RECORD_VARIABLE).is_some() || !path.is_file();
    let recorded = if is_new { None } else { Some(std::fs::read(&path)?) };
    let ComparedPicture { small_png, differing } =
        compared(site, png, recorded.as_deref()).await.with_context(|| name.clone())?;
    let Some(differing) = differing else {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(&path, small_png)?;
        let text = "is new: check the recorded picture and commit it";
        return Ok(Some(format!("{} {text}", path.display())));
    };
    if differing <= MAX_DIFFERING_SHARE {
        return Ok(None);
    }
    let whole = site.chromium.keep_picture(name, png)?;
    Ok(Some(format!(
        "{name}: {:.1} % of the pixels differ from {}: {} ({RECORD_VARIABLE}=1 records)",
        differing * 100.0,
        path.display(),
        whole.display()
    )))
}

/// Makes a small picture, and compares it with another small one.
async fn compared(
    site: &BrowserFixture<'_>,
    whole: &[u8],
    recorded: Option<&[u8]>,
) -> Result<ComparedPicture> {
    let encoded = |png: &[u8]| Value::String(BASE64_STANDARD.encode(png));
    let arguments = vec![encoded(whole), recorded.map_or(Value::Null, encoded)];
    let found = site.chromium.read_later(COMPARE_PICTURES, arguments).await?;
    let small = found["png"].as_str().with_context(|| found.to_string())?;
    let small_png = BASE64_STANDARD.decode(small)?;
    Ok(ComparedPicture { small_png, differing: found["differing"].as_f64() })
}
