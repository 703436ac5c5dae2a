//! What is encrypted: secrets of environments and releases, and references to them.
//!
//! Elsewhere: decrypting itself (`sops`); here `ENC[x]` stands for `x`.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use sops::SopsFormat as Sops;
use zeroize::Zeroizing;

use super::*;
use crate::{HelmfileReleasesToRender, SopsFileDecryptor};

/// Decrypts `ENC[x]`, and counts the files.
#[derive(Default)]
struct BracketDecryptor(AtomicUsize);

impl SopsFileDecryptor for BracketDecryptor {
    fn decrypt(&self, data: &[u8], format: Sops) -> Result<Zeroizing<Vec<u8>>, String> {
        self.0.fetch_add(1, Ordering::Relaxed);
        let text = String::from_utf8_lossy(data);
        let text = text.split_once("\nsops:").map_or(&*text, |(before, _)| before);
        let mut plain = String::new();
        for (at, part) in text.split("ENC[").enumerate() {
            let part = if at == 0 { part.to_owned() } else { part.replacen(']', "", 1) };
            plain.push_str(&part);
        }
        match format {
            Sops::Dotenv => Err("no dotenv here".to_owned()),
            _ => Ok(Zeroizing::new(plain.into_bytes())),
        }
    }
}

/// Makes no charts.
struct DisabledHelmRenderer;

impl HelmChartRenderer for DisabledHelmRenderer {
    fn template(&self, _: &ChartRenderRequest<'_>) -> Result<Vec<(String, Vec<u8>)>, String> {
        Err("no chart is rendered here".to_owned())
    }
}

fn encrypted(text: &str) -> String {
    format!("{text}\nsops:\n  mac: ENC[x,type:str]\n")
}

fn world_of(files: &[(&str, String)]) -> (HelmfileHostEnvironment, Arc<BracketDecryptor>) {
    let mut all = vec![("c/Chart.yaml", "{apiVersion: v2, name: c, version: 1.0.0}\n")];
    all.extend(files.iter().map(|(path, text)| (*path, text.as_str())));
    let brackets = Arc::new(BracketDecryptor::default());
    (helmfile_environment(&all).with_decrypt(brackets.clone()), brackets)
}

fn rendered(helmfile_environment: HelmfileHostEnvironment) -> Result<HelmfileReleasesToRender> {
    plan_in(helmfile_environment)?.renderings(&RenderCommandFlags::default(), &DisabledHelmRenderer)
}

/// The values and the flags of the first release of a helmfile that is a template.
fn release(helmfile: &str, files: &[(&str, String)]) -> Result<(Vec<Value>, Vec<String>)> {
    let mut all = vec![("helmfile.yaml.gotmpl", helmfile.to_owned())];
    all.extend_from_slice(files);
    let release = rendered(world_of(&all).0)?.releases.swap_remove(0);
    let values = release.values.iter().map(|text| crate::yaml::read(text).unwrap());
    Ok((values.collect(), release.flags))
}

fn values(helmfile: &str, files: &[(&str, String)]) -> Vec<Value> {
    release(helmfile, files).unwrap().0
}

fn why(helmfile: &str, files: &[(&str, String)]) -> String {
    release(helmfile, files).unwrap_err().to_string()
}

const RELEASE: &str = "releases:\n- {name: r, chart: ./c, values: [{a: {{ .Values.a }}}]}\n";

#[test]
fn secrets_of_an_environment_are_above_its_values_in_their_order() {
    let environment = "environments:\n  default:\n    values: [{a: 0, b: 0}]\n    secrets: [a.yaml, b.yaml]\n---\n";
    let release = "releases:\n- {name: r, chart: ./c, values: [{{ .Values | toJson }}]}\n";
    let files = [
        ("a.yaml", encrypted("a: ENC[1]\nc: '{{ no template }}'\nm: {x: ENC[1], y: 1}")),
        ("b.yaml", encrypted("a: ENC[2]\nm: {x: ENC[2]}")),
    ];
    let all = values(&format!("{environment}{release}"), &files);
    let wanted = json!({"a": 2, "b": 0, "c": "{{ no template }}", "m": {"x": 2, "y": 1}});
    assert_eq!(all, [wanted]);
}

/// Knows one file, in HCL.
struct FakeHclDecryptor;

impl SopsFileDecryptor for FakeHclDecryptor {
    fn decrypt(&self, _: &[u8], format: Sops) -> Result<Zeroizing<Vec<u8>>, String> {
        assert_eq!(format, Sops::Binary);
        Ok(Zeroizing::new(b"values {\n  a = \"one-${hv.b}\"\n}\n".to_vec()))
    }
}

#[test]
fn secrets_in_hcl_are_read_with_the_values_of_the_environment() {
    let hcl = "{\"data\": \"ENC\", \"sops\": {\"mac\": \"ENC[x,type:str]\"}}";
    let helmfile = format!(
        "environments:\n  default:\n    values: [b.hcl]\n    secrets: [s.hcl]\n---\n{RELEASE}"
    );
    let files = [
        ("helmfile.yaml.gotmpl", helmfile),
        ("s.hcl", hcl.to_owned()),
        ("b.hcl", "values {\n  b = \"two\"\n}\n".to_owned()),
    ];
    let helmfile_environment = world_of(&files).0.with_decrypt(Arc::new(FakeHclDecryptor));
    let release = rendered(helmfile_environment).unwrap().releases.swap_remove(0);
    assert_eq!(crate::yaml::read(&release.values[0]).unwrap(), json!({"a": "one-two"}));
}

#[test]
fn secrets_of_a_release_come_after_its_values_and_before_set() {
    let helmfile = "environments: {default: {values: [{n: 7}]}}\n---\nreleases:\n- name: r\n  chart: ./c\n  \
                    values: [{a: 0}]\n  secrets: [s.yaml, t.yaml.gotmpl]\n  set: [{name: a, value: '3'}]\n";
    let files = [
        ("s.yaml", encrypted("a: ENC[1]")),
        ("t.yaml.gotmpl", encrypted("a: ENC[2]\nn: {{ .Values.n }}")),
    ];
    let (all, flags) = release(helmfile, &files).unwrap();
    assert_eq!(all, [json!({"a": 0}), json!({"a": 1}), json!({"a": 2, "n": 7})]);
    assert!(flags.windows(2).any(|two| two == ["--set", "a=3"]), "{flags:?}");
    // Those that are written out, and one that may be missing.
    let inline = "releases:\n- name: r\n  chart: ./c\n  missingFileHandler: Warn\n  secrets:\n  - nope.yaml\n  \
                  - a: ENC[1]\n    sops: {mac: 'ENC[x,type:str]'}\n";
    assert_eq!(values(inline, &[]), [json!({"a": 1})]);
}

#[test]
fn files_that_are_missing_plain_or_several_are_refused() {
    let of_release =
        |secret: &str| format!("releases:\n- {{name: r, chart: ./c, secrets: ['{secret}']}}\n");
    let files = [("p.yaml", "a: plain-text\n".to_owned()), ("q.yaml", encrypted("- ENC[one]"))];
    for (helmfile, part) in [
        (of_release("p.yaml"), "failed to decrypt \"p.yaml\": it is not encrypted"),
        (of_release("*.yaml"), "patterns are not supported"),
        (of_release("nope.yaml"), "secrets file matching \"nope.yaml\" does not exist"),
        (of_release("../p.yaml"), "../p.yaml"),
        (of_release("q.yaml"), "its plain content is not a map in YAML"),
        (
            format!("environments: {{default: {{secrets: [p.yaml]}}}}\n---\n{RELEASE}"),
            "environment secrets file \"p.yaml\": it is not encrypted",
        ),
    ] {
        let error = why(&helmfile, &files);
        assert!(error.contains(part), "{error}");
        assert!(!error.contains("plain-text") && !error.contains("one"), "{error}");
    }
}

#[test]
fn without_keys_nothing_is_decrypted() {
    let helmfile = "releases:\n- {name: r, chart: ./c, secrets: [s.yaml]}\n";
    let secret = encrypted("a: ENC[1]");
    let files =
        [("c/Chart.yaml", "name: c\n"), ("helmfile.yaml", helmfile), ("s.yaml", secret.as_str())];
    let error = rendered(helmfile_environment(&files)).unwrap_err().to_string();
    assert!(error.contains("\"s.yaml\": it is encrypted"), "{error}");
}

#[test]
fn references_are_followed_wherever_helmfile_follows_them() {
    let helmfile = "releases:\n- name: r\n  chart: ./c\n  values:\n  - a: ref+sops://s.yaml#/m/n\n    b: [x-ref+sops://s.yaml#/t+-y]\n    \
                    c: ref+sops://./s.yaml#m\n    d: ref+sops://s.yaml#/none\n  - v.yaml\n  - ref+sops://s.yaml#/m\n  \
                    set:\n  - {name: s, value: 'ref+sops://s.yaml#/t'}\n  - {name: l, values: ['ref+sops://s.yaml#/m/n', z]}\n  \
                    setString: [{name: e, value: 'ref+sops://s.yaml#/t'}]\n";
    let files = [
        ("s.yaml", encrypted("m: {n: ENC[1]}\nt: ENC[a,b]")),
        ("v.yaml", "v: secretref+sops://s.yaml#/t\nw: 1\n".to_owned()),
    ];
    let (all, flags) = release(helmfile, &files).unwrap();
    let first = json!({"a": 1, "b": ["x-a,b-y"], "c": {"n": 1}, "d": null});
    assert_eq!(all, [first, json!({"v": "a,b", "w": 1}), json!({"n": 1})]);
    for pair in [["--set", "s=a\\,b"], ["--set", "l={1,z}"], ["--set-string", "e=a\\,b"]] {
        assert!(flags.windows(2).any(|two| two == pair), "{flags:?}");
    }
}

#[test]
fn a_reference_without_a_key_is_the_whole_text_in_the_format_of_its_name() {
    let files = [("s.yaml", encrypted("a: ENC[1]")), ("d/s.env", "A=ENC[1]\n".to_owned())];
    let of = |reference: &str| {
        let helmfile =
            format!("releases:\n- {{name: r, chart: ./c, values: [{{a: '{reference}'}}]}}\n");
        release(&helmfile, &files).map(|(mut values, _)| values.remove(0)["a"].clone())
    };
    assert_eq!(of("ref+sops://s.yaml"), Ok(json!("a: 1")));
    assert_eq!(of("ref+sops://s.yaml?encode=base64"), Ok(json!("YTogMQ==")));
    assert_eq!(of("ref+sops:///s.yaml#/a"), Ok(json!(1)));
    assert_eq!(of("ref+sops://d/s.env?format=binary"), Ok(json!("A=1\n")));
    // `a: ENC[1]`
    assert_eq!(of("ref+sops://YTogRU5DWzFd?key_type=base64#/a"), Ok(json!(1)));
    for (reference, part) in [
        ("ref+sops://d/s.env", "no dotenv here"),
        ("ref+sops://nope.yaml#/a", "open nope.yaml: no such file"),
        ("ref+sops://../../etc/s.yaml#/a", "etc/s.yaml"),
        ("ref+sops://s.yaml#/a/b", "the value of `a` is !!int, where a map is wanted"),
        ("ref+sops://s.yaml?encode=hex", "`raw` or `base64`"),
        ("ref+sops://s.yaml?key_type=url", "`filepath` or `base64`"),
        ("ref+sops://s.yaml?region=x#/a", "`region` is not supported"),
        ("ref+sops://s.yaml#/ref+sops://s.yaml#/a", "within a reference"),
        ("ref+vault://a/b#/c", "ref+vault:// is not supported"),
        ("ref+nosuch://a/b", "ref+nosuch:// is not supported"),
    ] {
        let error = of(reference).unwrap_err().to_string();
        assert!(error.contains(part), "{reference}: {error}");
    }
}

#[test]
fn a_missing_key_is_an_error_where_a_variable_says_so() {
    let helmfile = "releases:\n- {name: r, chart: ./c, values: [{a: 'ref+sops://s.yaml#/b'}]}\n";
    let files = [("helmfile.yaml", helmfile.to_owned()), ("s.yaml", encrypted("a: ENC[1]"))];
    let mut helmfile_environment = world_of(&files).0;
    let strict = "HELMFILE_VALS_FAIL_ON_MISSING_KEY_IN_MAP";
    helmfile_environment.variables.insert(strict.to_owned(), "true".to_owned());
    let error = rendered(helmfile_environment).unwrap_err().to_string();
    assert!(error.contains("no value found for key b"), "{error}");
}

#[test]
fn functions_follow_references_and_refuse_what_is_no_string() {
    let files = [("s.yaml", encrypted("t: ENC[one]\nn: ENC[12345678]"))];
    let helmfile = "environments: {default: {values: [{m: {t: 'ref+sops://s.yaml#/t', n: 'ref+sops://s.yaml#/n', k: 1}}]}}\n---\n\
                    releases:\n- name: r\n  chart: ./c\n  values:\n  - {a: '{{ fetchSecretValue .Values.m.t }}'}\n  \
                    - {{ .Values.m | expandSecretRefs | toJson }}\n";
    let all = values(helmfile, &files);
    assert_eq!(all, [json!({"a": "one"}), json!({"t": "one", "n": 12_345_678, "k": 1})]);
    let error = why(
        "releases:\n- {name: '{{ fetchSecretValue \"ref+sops://s.yaml#/n\" }}', chart: ./c}\n",
        &files,
    );
    assert!(error.contains("leads to !!int") && !error.contains("12345678"), "{error}");
}

#[test]
fn a_file_is_decrypted_once_for_all_that_name_it() {
    let helmfile = "environments: {default: {secrets: [s.yaml]}}\n---\nreleases:\n{{ range until 50 }}\
                    - {name: r{{ . }}, chart: ./c, secrets: [s.yaml], values: [{a: 'ref+sops://s.yaml#/a'}]}\n{{ end }}";
    let files = [("helmfile.yaml.gotmpl", helmfile.to_owned()), ("s.yaml", encrypted("a: ENC[1]"))];
    let (helmfile_environment, brackets) = world_of(&files);
    assert_eq!(rendered(helmfile_environment).unwrap().releases.len(), 50);
    assert_eq!(brackets.0.load(Ordering::Relaxed), 1);
}

#[test]
fn what_is_decrypted_counts() {
    // Each of the releases has a copy.
    let large = encrypted(&format!("a: ENC[{}]", "x".repeat(1 << 20)));
    let helmfile = "releases:\n{{ range until 400 }}- {name: r{{ . }}, chart: ./c, secrets: [s.yaml]}\n{{ end }}";
    let error = why(helmfile, &[("s.yaml", large)]);
    assert!(error.contains("bytes of memory"), "{error}");
}

#[test]
fn a_digest_tells_plans_with_other_secrets_apart() {
    let helmfile = "releases:\n- {name: r, chart: ./c, secrets: [s.yaml]}\n";
    let digest = |value: &str| {
        let files = [
            ("helmfile.yaml", helmfile.to_owned()),
            ("s.yaml", encrypted(&format!("a: ENC[{value}]"))),
        ];
        plan_in(world_of(&files).0).unwrap().digest().unwrap()
    };
    assert_eq!(digest("1"), digest("1"));
    assert_ne!(digest("1"), digest("2"));
}
