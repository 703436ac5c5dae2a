//! Plans of whole trees: what is refused by name, and what would never end.
//!
//! Below: what is encrypted (`tests/secrets.rs`). Elsewhere: answers of the real program (`e2e/conformance/helmfile`).

mod secrets;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use golang::time::{GoTime, GoTimeZone};
use tree::MemoryTree;

use crate::{
    ChartFetchError, ChartRenderRequest, ChartVersionRequest, HelmChartRenderer, HelmfileDialect,
    HelmfileHostEnvironment, HelmfilePlanSettings, HelmfileProcessingPlan, ManifestHook,
    ManifestHookTime, PartialOutput, PrintEnvFormat, PrintOutput, ProgramCall, ProgramRunner,
    ReleaseChartLocation, ReleaseListFormat, RemoteAddress, RemoteFetcher, RenderCommandFlags,
    RenderPurpose, Result,
};

fn plan(files: &[(&str, &str)]) -> Result<HelmfileProcessingPlan> {
    plan_in(helmfile_environment(files))
}

fn plan_in(helmfile_environment: HelmfileHostEnvironment) -> Result<HelmfileProcessingPlan> {
    let settings = HelmfilePlanSettings {
        environment: "default".to_owned(),
        ..HelmfilePlanSettings::default()
    };
    HelmfileProcessingPlan::load(&Arc::new(helmfile_environment), "/", &settings)
}

fn helmfile_environment(files: &[(&str, &str)]) -> HelmfileHostEnvironment {
    let files = MemoryTree::from_files(files.iter().copied()).unwrap();
    let utc = GoTimeZone::fixed("UTC", 0);
    let now = GoTime::from_unix(0, 0, utc.clone());
    // All values in turn: functions draw until they get one that they can use.
    let next = AtomicU8::new(0);
    let random = Arc::new(move |bytes: &mut [u8]| {
        bytes.fill_with(|| next.fetch_add(1, Ordering::Relaxed));
    });
    HelmfileHostEnvironment::new(Arc::new(files), BTreeMap::new(), now, utc, random)
}

fn listed(files: &[(&str, &str)]) -> Result<PrintOutput> {
    plan(files)?.list(ReleaseListFormat::Table)
}

/// The error of a helmfile that is a template.
fn error_of(text: &str) -> String {
    listed(&[("helmfile.yaml.gotmpl", text)]).unwrap_err().to_string()
}

#[test]
fn later_parts_see_values_of_earlier_ones() {
    let text =
        "values:\n- {n: 1, l: [a]}\n---\nreleases:\n- {name: \"r{{ .Values.n }}\", chart: ./c}\n";
    let files = [("helmfile.yaml.gotmpl", text)];
    let printed = listed(&files).unwrap();
    assert!(printed.text.contains("\nr1"), "{}", printed.text);
    assert_eq!(
        plan(&files).unwrap().print_env(PrintEnvFormat::Json).unwrap(),
        "[\n  {\n    \"filePath\": \"/helmfile.yaml.gotmpl\",\n    \"name\": \"default\",\n    \"values\": {\n      \
         \"l\": [\n        \"a\"\n      ],\n      \"n\": 1\n    }\n  }\n]\n"
    );
}

#[test]
fn what_would_run_or_fetch_something_is_refused_by_name() {
    let exec = error_of("releases:\n- {name: '{{ exec \"id\" (list) }}', chart: ./c}\n");
    assert!(exec.contains("exec is not supported") && exec.contains("readFile"), "{exec}");
    let reference =
        error_of("releases:\n- {name: '{{ fetchSecretValue \"ref+vault://a#/b\" }}', chart: c}\n");
    assert!(reference.contains("ref+vault://"), "{reference}");
    let remote = error_of("helmfiles:\n- git::https://example.com/r.git@helmfile.yaml\n");
    assert!(remote.contains("remote address"), "{remote}");
    let secrets = "environments:\n  default:\n    secrets: [s.yaml]\n---\nreleases: []\n";
    let secrets =
        listed(&[("helmfile.yaml", secrets), ("s.yaml", "a: b\n")]).unwrap_err().to_string();
    assert!(secrets.contains("\"s.yaml\"") && secrets.contains("`values`"), "{secrets}");
}

#[test]
fn hooks_are_named_and_not_run() {
    let hook =
        "hooks:\n- {name: h, events: [prepare], command: rm}\nreleases:\n- {name: r, chart: ./c}\n";
    let printed = listed(&[("helmfile.yaml", hook)]).unwrap();
    assert!(printed.warnings.iter().any(|it| it.contains("\"h\"") && it.contains("not run")));
}

#[test]
fn releases_that_selectors_or_conditions_leave_out_are_known() {
    let files = [
        (
            "helmfile.yaml",
            "environments: {default: {values: [{off: {enabled: false}}]}}\n---\nhelmfiles:\n\
             - {path: below.yaml, selectors: [tier=front]}\nreleases:\n\
             - {name: db, chart: ./c, namespace: n, labels: {tier: back}}\n\
             - {name: web, chart: ./c, labels: {tier: front}}\n\
             - {name: cache, chart: ./c, condition: off.enabled}\n",
        ),
        ("below.yaml", "releases:\n- {name: sub, chart: ./c, labels: {tier: back}}\n"),
    ];
    let loaded = |environment: &str, selectors: &[&str]| {
        let selectors = selectors.iter().map(|it| (*it).to_owned()).collect();
        let environment = environment.to_owned();
        let settings =
            HelmfilePlanSettings { environment, selectors, ..HelmfilePlanSettings::default() };
        HelmfileProcessingPlan::load(&Arc::new(helmfile_environment(&files)), "/", &settings)
            .unwrap()
    };
    let names = |plan: &HelmfileProcessingPlan| {
        let all = plan.identities().into_iter();
        all.map(|it| format!("{}/{}", it.namespace, it.name)).collect::<Vec<_>>().join(" ")
    };
    let whole = loaded("default", &[]);
    assert_eq!((names(&whole).as_str(), whole.is_partial()), ("/sub n/db /web /cache", false));
    let front = loaded("default", &["tier=front"]);
    assert_eq!((names(&front).as_str(), front.is_partial()), ("/sub n/db /web /cache", false));
    // A helmfile in which nothing can match is not read.
    let back = loaded("default", &["tier=back"]);
    assert_eq!((names(&back).as_str(), back.is_partial()), ("n/db /web /cache", true));
    assert!(loaded("prod", &[]).lacks_environment() && !whole.lacks_environment());
}

#[test]
fn a_helmfile_that_lacks_the_environment_is_named_beside_those_that_were_read() {
    let files = [
        (
            "helmfile.yaml",
            "environments: {prod: {}}\n---\nhelmfiles: [a.yaml, b.yaml]\nreleases: []\n",
        ),
        ("a.yaml", "environments: {prod: {}}\n---\nreleases: [{name: a, chart: ./c}]\n"),
        ("b.yaml", "environments: {prdo: {}}\n---\nreleases: [{name: b, chart: ./c}]\n"),
    ];
    let settings =
        HelmfilePlanSettings { environment: "prod".to_owned(), ..HelmfilePlanSettings::default() };
    let plan =
        HelmfileProcessingPlan::load(&Arc::new(helmfile_environment(&files)), "/", &settings)
            .unwrap();
    assert_eq!(plan.without_environment(), Some("/b.yaml"));
    assert_eq!(plan.files().collect::<Vec<_>>(), ["/a.yaml", "/helmfile.yaml"]);
}

#[test]
fn nothing_leads_out_of_the_tree() {
    let error =
        error_of("releases:\n- {name: '{{ readFile \"../../etc/passwd\" }}', chart: ./c}\n");
    assert!(error.contains("etc/passwd"), "{error}");
    let values = "environments:\n  default:\n    values: [../x.yaml]\n---\nreleases: []\n";
    assert!(listed(&[("helmfile.yaml", values)]).is_err());
}

#[test]
fn circles_of_helmfiles_bases_and_templates_end() {
    let circle = listed(&[
        ("helmfile.yaml", "helmfiles: [a.yaml]\n"),
        ("a.yaml", "helmfiles: [helmfile.yaml]\n"),
    ]);
    assert!(circle.unwrap_err().to_string().contains("contain each other"));
    // Each level has two helmfiles, which both name those of the next one.
    let mut files =
        vec![("helmfile.yaml".to_owned(), "helmfiles: [a0.yaml, b0.yaml]\n".to_owned())];
    for level in 0..15 {
        let text = format!("helmfiles: [a{0}.yaml, b{0}.yaml]\n", level + 1);
        files.extend([(format!("a{level}.yaml"), text.clone()), (format!("b{level}.yaml"), text)]);
    }
    for last in ["a15.yaml", "b15.yaml"] {
        files.push((last.to_owned(), "releases: []\n".to_owned()));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, &**text)).collect();
    let bomb = listed(&files).unwrap_err().to_string();
    assert!(bomb.contains("more than 5000 helmfiles"), "{bomb}");
    let base =
        listed(&[("helmfile.yaml", "bases: [b.yaml]\n"), ("b.yaml", "bases: [helmfile.yaml]\n")]);
    assert!(base.unwrap_err().to_string().contains("nested"));
    let inherit = "templates:\n  a: {inherit: [{template: b}]}\n  b: {inherit: [{template: a}]}\n\
                   releases:\n- {name: r, chart: ./c, inherit: [{template: a}]}\n";
    let inherit = listed(&[("helmfile.yaml", inherit)]).unwrap_err().to_string();
    assert!(inherit.contains("a->b->a"), "{inherit}");
    let endless =
        "{{ define \"a\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}\nreleases: []\n";
    // The loader of a plan provides the stack that templates need.
    let thread = std::thread::Builder::new().stack_size(helm::render::REQUIRED_STACK_BYTES);
    let endless = thread.spawn(|| error_of(endless)).unwrap().join().unwrap();
    assert!(endless.contains("include"), "{endless}");
}

#[test]
fn unknown_keys_are_errors_with_their_line() {
    let error = listed(&[("helmfile.yaml", "releases:\n- name: r\n  chart: ./c\n  nope: 1\n")]);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("helmfile.yaml") && error.contains("line 4") && error.contains("nope"),
        "{error}"
    );
}

#[test]
fn a_plan_without_releases_says_so() {
    let printed =
        plan(&[("helmfile.yaml", "releases: []\n")]).unwrap().build(false, "/tmp").unwrap();
    assert!(!printed.has_releases);
    assert!(printed.text.starts_with("---\n#  Source: /helmfile.yaml\n"), "{}", printed.text);
}

/// The digest of a plan, and the functions that drew on the time or randomness meanwhile.
fn digest(files: &[(&str, &str)]) -> (String, Vec<&'static str>) {
    let plan = plan(files).unwrap();
    (plan.digest().unwrap(), plan.drawn())
}

#[test]
fn a_digest_changes_with_every_setting_of_a_release() {
    const HELMFILE: &str = "environments:\n  default:\n    values: [env.yaml]\n---\nreleases:\n\
        - name: r\n  chart: ./c\n  values: [values.yaml.gotmpl, {b: 1}]\n  set: [{name: f, file: f.txt}]\n  \
        strategicMergePatches: [patch.yaml]\n  needs: [s]\n- {name: s, chart: ./c, installed: true}\n";
    let files = |changed: &'static str, text: &'static str| {
        let all = [
            ("helmfile.yaml", HELMFILE),
            ("env.yaml", "a: 1\n"),
            ("values.yaml.gotmpl", "a: {{ .Values.a }}\n"),
            ("f.txt", "text"),
            ("patch.yaml", "kind: A\n"),
            ("other.txt", "not named"),
        ];
        all.map(|(path, known)| (path, if path == changed { text } else { known }))
    };
    let (first, drawn) = digest(&files("", ""));
    assert!(first.starts_with("sha256:") && first.len() == 71, "{first}");
    assert_eq!(drawn, Vec::<&str>::new());
    assert_eq!(digest(&files("", "")).0, first);
    assert_eq!(digest(&files("other.txt", "not named either")).0, first);
    for (path, text) in [
        ("env.yaml", "a: 2\n"),
        ("env.yaml", "a: 1\nb: 1\n"),
        ("values.yaml.gotmpl", "a: 3\n"),
        ("f.txt", "texts"),
        ("patch.yaml", "kind: B\n"),
        ("helmfile.yaml", "releases:\n- {name: r, chart: ./c}\n"),
    ] {
        assert_ne!(digest(&files(path, text)).0, first, "{path}");
    }
}

#[test]
fn functions_that_draw_on_the_time_or_randomness_are_named() {
    let of =
        |text: &str| digest(&[("helmfile.yaml.gotmpl", text), ("v.gotmpl", "a: {{ uuidv4 }}")]).1;
    let release = |name: &str| format!("releases:\n- {{name: {name}, chart: ./c}}\n");
    for call in
        ["randAlpha 3", "randInt 0 5", "bcrypt \"a\"", "uuidv4", "now | unixEpoch", "htmlDate nil"]
    {
        let function = call.split(' ').next().unwrap();
        assert_eq!(of(&release(&format!("'{{{{ {call} | toString | quote }}}}'"))), [function]);
    }
    for call in ["htmlDate 5", "sha256sum \"a\"", "dig \"a\" 1 (dict)"] {
        assert!(of(&release(&format!("'{{{{ {call} }}}}'"))).is_empty(), "{call}");
    }
    let values = "releases:\n- {name: r, chart: ./c, values: [v.gotmpl]}\n";
    let plan = plan(&[("helmfile.yaml", values), ("v.gotmpl", "a: {{ uuidv4 }}")]).unwrap();
    assert!(plan.drawn().is_empty());
    plan.digest().unwrap();
    assert_eq!(plan.drawn(), ["uuidv4"]);
}

/// Prints what it is asked to run.
struct EchoProgramRunner;

impl ProgramRunner for EchoProgramRunner {
    fn run(&self, program: &ProgramCall<'_>) -> Result<Vec<u8>, String> {
        match program.command {
            "fail" => Err("`fail` ended with status 1: no".to_owned()),
            _ => Ok(format!("{program:?}").into_bytes()),
        }
    }
}

#[test]
fn programs_are_run_only_where_they_are_allowed() {
    let run = |call: &str| {
        let text = format!("values:\n- out: {{{{ {call} | quote }}}}\n");
        let files =
            [("sub/helmfile.yaml.gotmpl", text.as_str()), ("helmfile.yaml", "helmfiles: [sub]\n")];
        let plan =
            plan_in(helmfile_environment(&files).with_programs(Arc::new(EchoProgramRunner)))?;
        let drawn = plan.drawn();
        Ok::<_, crate::Error>((plan.print_env(PrintEnvFormat::Json)?, drawn))
    };
    let (printed, drawn) = run("exec \"cat\" (list \"-a\" \"b\") \"in\"").unwrap();
    assert!(printed.contains("command") && printed.contains("-a"), "{printed}");
    assert!(printed.contains("directory") && printed.contains("/sub"), "{printed}");
    assert_eq!(drawn, ["exec"]);
    let (printed, drawn) = run("envExec (dict \"NAME\" \"value\") \"sh\" (list)").unwrap();
    assert!(printed.contains("NAME") && printed.contains("value"), "{printed}");
    assert_eq!(drawn, ["envExec"]);
    let error = |call: &str| run(call).unwrap_err().to_string();
    assert!(
        error("exec \"cat\" (list 1)").contains("argument 0 of exec: int"),
        "{}",
        error("exec \"cat\" (list 1)")
    );
    assert!(error("exec \"fail\" (list)").contains("ended with status 1: no"));
    assert!(error_of("a: {{ envExec (dict) \"id\" (list) }}\n").contains("--allow-exec"));
}

/// Everything is in `/fetched` already, by host.
struct FakeFetcher;

impl RemoteFetcher for FakeFetcher {
    fn fetch(&self, address: &RemoteAddress) -> Result<String, String> {
        match address.host.as_str() {
            "down" => Err("timed out".to_owned()),
            host => Ok(format!("/fetched/{host}")),
        }
    }

    fn chart(&self, chart: &ChartVersionRequest) -> Result<String, ChartFetchError> {
        match chart.url.as_str() {
            "https://down" => Err(ChartFetchError::Failed("timed out".to_owned())),
            "https://refused" => Err(ChartFetchError::Refused("not allowed".to_owned())),
            _ => Ok(format!("/fetched/{}", chart.name)),
        }
    }
}

/// Renders nothing: no release here has dependencies.
struct DisabledHelmRenderer;

impl HelmChartRenderer for DisabledHelmRenderer {
    fn template(&self, _: &ChartRenderRequest<'_>) -> Result<Vec<(String, Vec<u8>)>, String> {
        Err("nothing is to be rendered".to_owned())
    }
}

#[test]
fn a_refused_chart_fails_its_release_only_where_releases_are_kept() {
    let text = "repositories: [{name: web, url: 'https://up'}, {name: closed, url: 'https://refused'}]\n\
                releases: [{name: a, chart: closed/app}, {name: b, chart: web/app, needs: [a]}]\n";
    let chart = "apiVersion: v2\nname: app\nversion: 1.0.0\n";
    let files = [("helmfile.yaml", text), ("fetched/app/Chart.yaml", chart)];
    let renderings = |purpose| {
        let plan = plan_in(helmfile_environment(&files).with_fetch(Arc::new(FakeFetcher))).unwrap();
        plan.renderings(
            &RenderCommandFlags { purpose, ..RenderCommandFlags::default() },
            &DisabledHelmRenderer,
        )
    };
    let why = "cannot fetch the chart `closed/app`: not allowed";
    let kept = renderings(RenderPurpose::Apply).unwrap().releases;
    assert!(matches!(&kept[0].chart, ReleaseChartLocation::Refused { why: it } if it == why));
    assert!(matches!(&kept[1].chart, ReleaseChartLocation::Path(path) if path == "/fetched/app"));
    assert_eq!(kept[1].needs, [kept[0].id.clone()]);
    let error = renderings(RenderPurpose::default()).unwrap_err().to_string();
    assert!(error.contains(why), "{error}");
}

#[test]
fn what_a_release_changes_in_a_refused_chart_is_identified() {
    let changes = |release: &str, text: &str| {
        let helmfile = format!(
            "repositories: [{{name: closed, url: 'https://refused'}}]\n\
             releases: [{{name: a, chart: closed/app, {release}}}]\n"
        );
        let files = [
            ("helmfile.yaml", helmfile.as_str()),
            ("patch.yaml", text),
            ("transformer.yaml", "kind: PatchTransformer\npath: patch.yaml\n"),
            ("extra/Chart.yaml", text),
        ];
        let environment = helmfile_environment(&files).with_fetch(Arc::new(FakeFetcher));
        let purpose = RenderPurpose::Apply;
        let options = RenderCommandFlags { purpose, ..RenderCommandFlags::default() };
        let all = plan_in(environment).unwrap().renderings(&options, &DisabledHelmRenderer);
        all.unwrap().releases[0].chart_changes.clone()
    };
    assert_eq!(changes("version: ~1", ""), "");
    for release in [
        "strategicMergePatches: [patch.yaml]",
        "jsonPatches: [patch.yaml]",
        "transformers: [transformer.yaml]",
        "dependencies: [{chart: ./extra, version: 1.0.0}]",
    ] {
        let one = changes(release, "a: 1\n");
        assert!(one.starts_with("sha256:"), "{release}: {one}");
        assert_eq!(one, changes(release, "a: 1\n"), "{release}");
        assert_ne!(one, changes(release, "a: 2\n"), "{release}");
    }
    assert_ne!(changes("forceNamespace: x", ""), changes("forceNamespace: y", ""));
}

#[test]
fn charts_of_repositories_are_where_they_were_fetched_to() {
    let chart = "apiVersion: v2\nname: app\nversion: 1.0.0\n";
    let rendered = |release: &str| -> Result<(String, String)> {
        let text = format!(
            "repositories:\n- {{name: web, url: 'https://up'}}\n- {{name: away, url: 'https://down'}}\n\
             - {{name: closed, url: 'https://up', caFile: a.crt}}\nreleases: [{{name: a, {release}}}]\n"
        );
        let files = [
            ("helmfile.yaml", text.as_str()),
            ("fetched/app/Chart.yaml", chart),
            ("web/here/Chart.yaml", chart),
        ];
        let plan = plan_in(helmfile_environment(&files).with_fetch(Arc::new(FakeFetcher)))?;
        let all = plan.renderings(&RenderCommandFlags::default(), &DisabledHelmRenderer)?;
        let ReleaseChartLocation::Path(path) = all.releases[0].chart.clone() else {
            panic!("it was made")
        };
        Ok((path, all.releases[0].shown.clone()))
    };
    let of = |path: &str, shown: &str| (path.to_owned(), shown.to_owned());
    assert_eq!(rendered("chart: web/app, version: ~1").unwrap(), of("/fetched/app", "web/app"));
    let by_address = rendered("chart: 'oci://host/folder/app'").unwrap();
    assert_eq!(by_address, of("/fetched/app", "oci://host/folder/app"));
    // A directory of the name is taken first.
    assert_eq!(rendered("chart: web/here").unwrap(), of("/web/here", "web/here"));
    for (release, part) in [
        ("chart: away/app", "cannot fetch the chart `away/app`: timed out"),
        ("chart: none/app", "no repository `none`"),
        ("chart: closed/app", "has caFile, which is not supported"),
    ] {
        let error = rendered(release).unwrap_err().to_string();
        assert!(error.contains(part), "{release}: {error}");
    }
}

#[test]
fn helmfiles_bases_and_values_may_be_elsewhere() {
    const HELMFILE: &str = "bases: ['git::https://bases/r.git@a/base.yaml']\n---\n\
        environments:\n  default:\n    values: ['https://values/d/env.yaml?x=y']\n---\n\
        helmfiles: ['git::ssh://git@subs/r.git@d?ref=v1']\n\
        releases:\n- {name: '{{ .Values.a }}', chart: ./c, inherit: [{template: t}]}\n";
    let files = [
        ("helmfile.yaml.gotmpl", HELMFILE),
        ("fetched/bases/a/base.yaml", "templates:\n  t: {namespace: of-base}\n"),
        ("fetched/values/env.yaml", "a: of-values\n"),
        ("fetched/subs/d/one.yaml", "releases:\n- {name: of-sub, chart: ./c}\n"),
    ];
    let plan = plan_in(helmfile_environment(&files).with_fetch(Arc::new(FakeFetcher))).unwrap();
    let text = plan.list(ReleaseListFormat::Table).unwrap().text;
    assert!(
        text.contains("of-base") && text.contains("of-values") && text.contains("of-sub"),
        "{text}"
    );
    let refused = plan_in(helmfile_environment(&files)).err().unwrap().to_string();
    assert!(refused.contains("remote address"), "{refused}");
}

#[test]
fn what_cannot_be_fetched_is_named() {
    let error = |address: &str| {
        let text = format!("helmfiles: ['{address}']\n");
        let files = [("helmfile.yaml", text.as_str())];
        plan_in(helmfile_environment(&files).with_fetch(Arc::new(FakeFetcher)))
            .err()
            .unwrap()
            .to_string()
    };
    let down = error("git::https://user:secret@down/r.git@f.yaml?token=t");
    assert!(down.contains("cannot fetch git::https://down/r.git@f.yaml: timed out"), "{down}");
    assert!(!down.contains("secret") && !down.contains("token"), "{down}");
    assert!(error("git::https://up/r.git@../../etc/x.yaml").contains("leads out"));
    assert!(error("git::https://up/r.git@none.yaml").contains("there is no /fetched/up/none.yaml"));
}

#[test]
fn a_lock_file_is_what_helmfile_writes() {
    const HELMFILE: &str = "repositories:\n- {name: my, url: 'http://127.0.0.1:8766'}\nreleases:\n\
        - {name: one, chart: my/c, namespace: n}\n- {name: two, chart: my/c, version: ~0.1.0}\n\
        - {name: three, chart: ./loc}\n- {name: four, chart: my/c, version: 0.1.0, installed: false}\n";
    const LOCAL: &str = "dependencies:\n- {name: lib, repository: 'file://../lib'}\n\
        - {name: there, repository: 'https://a'}\n- {name: gone, repository: 'https://a'}\n";
    let files = [
        ("helmfile.yaml", HELMFILE),
        ("loc/Chart.yaml", LOCAL),
        ("loc/charts/there-1.0.0.tgz", ""),
    ];
    let all = plan(&files).unwrap().dependencies().unwrap();
    let [warning] = all.warnings.as_slice() else { panic!("{:?}", all.warnings) };
    assert!(warning.contains("`./loc` names gone of \"https://a\""), "{warning}");
    let [unlocked] = all.unlocked.as_slice() else { panic!("{:?}", all.unlocked) };
    assert_eq!(unlocked.path, "/helmfile.lock");
    let versions = ["0.2.0", "0.1.0", "0.1.0"].map(str::to_owned);
    // The answer of helmfile 1.8.0 with Helm 4.2.4.
    assert_eq!(
        unlocked.text(&versions, "2026-11-23T20:47:37.224199589Z").unwrap(),
        "version: v1.8.0\ndependencies:\n  - name: c\n    repository: http://127.0.0.1:8766\n    version: 0.2.0\n  \
         - name: c\n    repository: http://127.0.0.1:8766\n    version: 0.1.0\n\
         digest: sha256:c53d54f4c12841aec2018ddd9e3e10a465dac1083696b120a8bc2e4027a10261\n\
         generated: \"2026-11-23T20:47:37.224199589Z\"\n"
    );
    let locked = unlocked.text(&versions, "2026-11-23T20:47:37Z").unwrap();
    let files = [("helmfile.lock", locked.as_str()), ("helmfile.yaml", HELMFILE)];
    assert!(listed(&files).unwrap().text.contains("my/c \t0.2.0"));
}

#[test]
fn an_old_helmfile_is_a_template_whose_environments_stand_beside_its_releases() {
    let text = "environments:\n  default: {values: [{n: 1}]}\nhelmDefaults: {tillerless: true, wait: true}\n\
                charts:\n- name: r{{ .Environment.Values.n }}\n  chart: ./c\n  tls: true\n  \
                values: [{v: {{ readFile (printf \"%s\" .Environment.Values.file) | quote }}}]\n";
    let text = text.replace("[{n: 1}]", "[{n: 1, file: f}]");
    let files = [("helmfile.yaml", text.as_str()), ("f", "read"), ("c/Chart.yaml", "name: c\n")];
    let load = |dialect| {
        let settings = HelmfilePlanSettings {
            environment: "default".to_owned(),
            dialect,
            ..HelmfilePlanSettings::default()
        };
        HelmfileProcessingPlan::load(&Arc::new(helmfile_environment(&files)), "/", &settings)
    };
    let listed = load(HelmfileDialect::V0).unwrap().list(ReleaseListFormat::Table).unwrap();
    assert!(listed.text.contains("\nr1"), "{}", listed.text);
    assert!(load(HelmfileDialect::V1).is_err());
}

/// What the hooks of a release apply where its releases are kept, or why they are refused.
fn hooks_of(hooks: &str, more: &str) -> Result<Vec<ManifestHook>> {
    let text = format!("{more}\nreleases:\n- {{name: r, chart: ./c, hooks: [{hooks}]}}\n");
    let files = [
        ("helmfile.yaml", text.as_str()),
        ("c/Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n"),
        ("m/r.yaml", "kind: R\n"),
        ("m/b.json", "{kind: B}\n"),
        ("m/note.txt", "nothing\n"),
        ("empty/note.txt", "nothing\n"),
        ("m/below/c.yaml", "kind: C\n"),
        ("k/kustomization.yaml", "namePrefix: p-\nresources: [map.yaml]\n"),
        ("k/map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: map}\n"),
    ];
    let options =
        RenderCommandFlags { purpose: RenderPurpose::Apply, ..RenderCommandFlags::default() };
    Ok(plan(&files)?.renderings(&options, &DisabledHelmRenderer)?.releases.remove(0).hooks)
}

#[test]
fn hooks_apply_manifests_of_files_directories_and_kustomizations_around_operations() {
    let applied = hooks_of(
        "{events: [postsync], kubectlApply: {kustomize: k}}, \
         {name: all, events: [presync, postsync], kubectlApply: {filename: './m'}}, \
         {events: [preapply], kubectlApply: {filename: 'm/{{ .Release.Name }}.yaml,m/b.json'}}",
        "",
    );
    let applied = applied.unwrap();
    let of: Vec<_> = applied.iter().map(|it| (it.name.as_str(), it.when)).collect();
    let plain = "kubectlApply";
    let all = "all";
    let wanted = [
        (plain, ManifestHookTime::Before),
        (all, ManifestHookTime::Before),
        (plain, ManifestHookTime::After),
        (all, ManifestHookTime::After),
    ];
    assert_eq!(of, wanted);
    let manifests: Vec<&str> = applied.iter().map(|it| it.manifests.as_str()).collect();
    assert_eq!(manifests[0], "kind: R\n\n---\n{kind: B}\n");
    assert_eq!(manifests[1], "{kind: B}\n\n---\nkind: R\n");
    assert!(manifests[2].contains("name: p-map"), "{}", manifests[2]);
    assert_eq!(manifests[3], manifests[1]);
}

#[test]
fn hooks_that_cannot_be_followed_are_refused_by_name() {
    for (hooks, more, parts) in [
        ("{events: [presync], command: rm}", "", ["`rm`", "runs a program"]),
        ("{name: h, events: [prepare], kubectlApply: {filename: m}}", "", ["`prepare`", "`h`"]),
        (
            "{events: [preuninstall], kubectlApply: {filename: m}}",
            "",
            ["`preuninstall`", "pre-delete"],
        ),
        ("{events: [sync], kubectlApply: {filename: m}}", "", ["`sync`", "no such event"]),
        (
            "{events: [presync], kubectlApply: {filename: 'https://h/f.yaml'}}",
            "",
            ["hook[kubectlApply]", "into the source"],
        ),
        (
            "{events: [presync], kubectlApply: {filename: none.yaml}}",
            "",
            ["none.yaml", "no such file"],
        ),
        (
            "{events: [presync], kubectlApply: {filename: '../x'}}",
            "",
            ["hook[kubectlApply]", "../x"],
        ),
        ("{events: [presync], kubectlApply: {filename: empty}}", "", ["`empty`", "has no file"]),
        (
            "{events: [presync], kubectlApply: {filename: m, kustomize: k}}",
            "",
            ["kustomize", "together"],
        ),
        ("{events: [presync], kubectlApply: {other: m}}", "", ["either", "filename"]),
        (
            "",
            "hooks: [{name: top, events: [prepare], kubectlApply: {filename: m}}]",
            ["`top`", "whole helmfile"],
        ),
    ] {
        let error = hooks_of(hooks, more).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{hooks} {more}: {error}");
    }
}

/// Helmfiles below one, of which the second has a release that others lack something for.
fn below(second: &str) -> HelmfileHostEnvironment {
    helmfile_environment(&[
        (
            "helmfile.yaml.gotmpl",
            "helmfiles: [sub/a.yaml, sub/b.yaml]\nreleases:\n- {name: top, chart: ./c}\n",
        ),
        ("sub/a.yaml", "releases:\n- {name: one, chart: ../c}\n"),
        ("sub/b.yaml", second),
        ("c/Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n"),
    ])
}

const TRAIL: &str = "in ./helmfile.yaml.gotmpl: in .helmfiles[1]: in sub/b.yaml: ";

#[test]
fn releases_before_one_that_fails_are_rendered_and_the_error_names_the_files() {
    let rendered = |second: &str| {
        let plan = plan_in(below(second)).unwrap();
        let PartialOutput { made, error } =
            plan.renderings_until_error(&RenderCommandFlags::default(), &DisabledHelmRenderer);
        let names: Vec<String> = made.releases.into_iter().map(|it| it.name).collect();
        (names.join(" "), error.map(|error| error.to_string()).unwrap_or_default())
    };
    // What helmfile 1.8.0 prints before its errors.
    for (second, names, error) in [
        (
            "{name: two, chart: ../c}\n- {name: three, chart: ../c, values: [no.yaml]}",
            "one two",
            "release \"three\": ",
        ),
        (
            "{name: two, chart: ../c}\n- {name: three, chart: ../no}",
            "one two",
            "release \"three\": ",
        ),
        (
            "{name: two, chart: ../c, needs: [three]}\n- {name: three, chart: ../c, values: [no.yaml]}",
            "one",
            "release \"three\": ",
        ),
        (
            "{name: two, chart: ../c, condition: x.enabled}",
            "one",
            "failed to parse condition in release two",
        ),
    ] {
        let (found, message) = rendered(&format!("releases:\n- {second}\n"));
        assert_eq!(found, names, "{second}");
        assert!(message.starts_with(&format!("{TRAIL}{error}")), "{message}");
    }
    assert_eq!(rendered("releases: []\n"), ("one top".to_owned(), String::new()));
}

#[test]
fn helmfiles_before_one_that_cannot_be_loaded_are_known() {
    let settings = HelmfilePlanSettings {
        environment: "default".to_owned(),
        ..HelmfilePlanSettings::default()
    };
    let helmfile_environment = Arc::new(below("releases:\n- {nme: two}\n"));
    let PartialOutput { made, error } =
        HelmfileProcessingPlan::load_until_error(&helmfile_environment, "/", &settings);
    assert!(error.unwrap().to_string().starts_with(TRAIL));
    assert!(made.build(false, "/tmp").unwrap().text.contains("name: one"));
    assert!(HelmfileProcessingPlan::load(&helmfile_environment, "/", &settings).is_err());
}

#[test]
fn a_need_that_is_not_selected_names_the_files_that_led_to_it() {
    let selectors = vec!["name=two".to_owned()];
    let settings = HelmfilePlanSettings {
        environment: "default".to_owned(),
        selectors,
        ..HelmfilePlanSettings::default()
    };
    let second = "releases:\n- {name: two, chart: ../c, needs: [x]}\n- {name: x, chart: ../c}\n";
    let plan = || HelmfileProcessingPlan::load(&Arc::new(below(second)), "/", &settings).unwrap();
    let PartialOutput { made, error } = plan().show_dag_until_error();
    assert_eq!(made.text, "GROUP RELEASE DEPENDENCIES\n");
    let error = error.unwrap().to_string();
    assert!(error.starts_with(&format!("{TRAIL}release(s) \"two\" depend(s) on")), "{error}");
    assert!(plan().show_dag().is_err());
}
