//! Files that are large enough to be rendered on several threads come out as if they were rendered one by one.

use parking_lot::Mutex;

use super::*;

/// Eight files, in the order in which they are rendered: the last name first. Each has the same text with its number
/// for `#`, below a text that makes all of them large enough.
fn eight(text: &str) -> Chart {
    eight_below(text, 16 << 10)
}

/// [`eight`] below a text of so many bytes.
fn eight_below(text: &str, bytes: usize) -> Chart {
    let long = format!("{{{{- /*{}*/ -}}}}", "x".repeat(bytes));
    let strings: Vec<(String, String)> = (0..8)
        .map(|number| {
            let text = text.replace('#', &number.to_string());
            (format!("{}", 7 - number), format!("{long}{text}"))
        })
        .collect();
    let files: Vec<(&str, &str)> =
        strings.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    chart("c", &files)
}

/// The output of the files, in the order in which they are rendered, and whether the templates are known to have an
/// order.
fn said(chart: &Chart, json: Json, env: &RenderEnvironment) -> (Result<Vec<String>, String>, bool) {
    on_stack(|| {
        let templates = ChartTemplates::parse(chart).unwrap();
        let mut all = Vec::new();
        // The second time it may be known that there is an order.
        for _ in 0..2 {
            let mode = RenderMode::default();
            let values = values(json.clone());
            let strings = templates.render(chart, &values, &release(), env, mode, &mut Vec::new());
            let strings = strings.map_err(|error| error.to_string()).map(|strings| {
                let strings = strings.into_values().rev();
                strings.map(|text| String::from_utf8(text).unwrap()).collect::<Vec<_>>()
            });
            all.push(strings);
        }
        let last = all.pop().unwrap();
        assert_eq!(all.as_slice(), std::slice::from_ref(&last));
        (last, templates.is_ordered.load(std::sync::atomic::Ordering::Relaxed))
    })
}

fn check(text: &str, wanted: [&str; 8], is_ordered: bool) {
    let values = json!({"n": {"x": 0}, "list": [{"x": 0}], "t": "{{ .x }}"});
    let (found, ordered) = said(&eight(text), values, &env());
    assert_eq!(found.unwrap(), wanted, "{text}");
    // On a single processor no render is parallel.
    let several = std::thread::available_parallelism().is_ok_and(|it| it.get() > 1);
    assert_eq!(ordered, is_ordered && several, "{text}");
}

#[test]
fn files_that_only_read_have_no_order() {
    let all = ["0", "1", "2", "3", "4", "5", "6", "7"];
    check("{{ add .Values.n.x # }}", all, false);
    // What is changed is their own.
    check(r##"{{ $d := dict "x" 1 }}{{ $_ := set $d "x" # }}{{ $d.x }}"##, all, false);
    check(r##"{{ $d := deepCopy .Values.n }}{{ $_ := set $d "x" # }}{{ $d.x }}"##, all, false);
    check(r##"{{ (merge (dict "x" #) .Values.n).x }}"##, all, false);
    check(r##"{{ tpl .Values.t (dict "x" #) }}"##, all, false);
    let names = ["c/templates/7", "c/templates/6", "c/templates/5", "c/templates/4"];
    let more = ["c/templates/3", "c/templates/2", "c/templates/1", "c/templates/0"];
    let names: Vec<&str> = names.into_iter().chain(more).collect();
    check("{{ .Template.Name }}", names.try_into().unwrap(), false);
}

#[test]
fn what_a_file_changes_is_seen_by_the_next() {
    let counted = ["1", "2", "3", "4", "5", "6", "7", "8"];
    for text in [
        r#"{{ $_ := set .Values.n "x" (add1 .Values.n.x) }}{{ .Values.n.x }}"#,
        r#"{{ $l := index .Values.list 0 }}{{ $_ := set $l "x" (add1 $l.x) }}{{ $l.x }}"#,
        r#"{{ $_ := mergeOverwrite .Values (dict "n" (dict "x" (add1 .Values.n.x))) }}{{ .Values.n.x }}"#,
        // What is merged is shared with what it came from.
        r#"{{ $d := merge (dict) .Values }}{{ $_ := set $d.n "x" (add1 $d.n.x) }}{{ .Values.n.x }}"#,
        r#"{{ $_ := set . "count" (add1 (.count | default 0)) }}{{ .count }}"#,
        r#"{{ $_ := set .Release "count" (add1 (.Release.count | default 0)) }}{{ .Release.count }}"#,
        r#"{{ tpl "{{ $_ := set .Values.n \"x\" (add1 .Values.n.x) }}{{ .Values.n.x }}" . }}"#,
    ] {
        check(text, counted, true);
    }
    let unset = ["true", "false", "false", "false", "false", "false", "false", "false"];
    check(r#"{{ hasKey .Values "n" }}{{ $_ := unset .Values "n" }}"#, unset, true);
}

#[test]
fn randomness_is_used_up_in_the_order_of_files() {
    let count = Mutex::new(0);
    let random = move |buffer: &mut [u8]| {
        let mut count = count.lock();
        *count = if *count == 8 { 1 } else { *count + 1 };
        buffer.fill(*count);
    };
    let env = RenderEnvironment { random: Arc::new(random), ..env() };
    let (found, _) = said(&eight("{{ uuidv4 | trunc 2 }}"), json!({}), &env);
    assert_eq!(found.unwrap(), ["01", "02", "03", "04", "05", "06", "07", "08"]);
}

/// The output of the files if the random bytes begin with the seed.
fn drawn(chart: &Chart, seed: u8) -> Vec<Vec<u8>> {
    let next = Mutex::new(seed);
    let random = move |buffer: &mut [u8]| {
        let mut next = next.lock();
        for byte in buffer {
            *byte = *next;
            *next = next.wrapping_mul(5).wrapping_add(31);
        }
    };
    let env = RenderEnvironment { random: Arc::new(random), ..env() };
    let rendered = render_with(chart, &values(json!({})), &env, RenderMode::default()).0;
    rendered.unwrap().into_values().collect()
}

#[test]
fn what_is_drawn_is_the_same_side_by_side_and_one_by_one() {
    for text in [
        r#"{{ uuidv4 }}{{ randAlphaNum 20 }}{{ randAscii 3 }}{{ randBytes 5 }}{{ randInt 0 1000 }}"#,
        r#"{{ shuffle "abcdefgh" }}{{ if eq # 2 }}{{ bcrypt "p" }}{{ end }}{{ encryptAES "key" "text" }}"#,
        r#"{{ genPrivateKey "ed25519" }}"#,
        // Some files draw, and one draws what another asks of it.
        r#"{{ if eq (mod # 3) 1 }}{{ randNumeric 9 }}{{ end }}{{ tpl "{{ randAlpha 4 }}" . }}"#,
        r#"{{ $_ := set .Values "drawn" (uuidv4) }}{{ .Values.drawn }}"#,
    ] {
        let [side_by_side, one_by_one] = [16 << 10, 0].map(|it| drawn(&eight_below(text, it), 1));
        assert_eq!(side_by_side, one_by_one, "{text}");
        assert_ne!(one_by_one, drawn(&eight_below(text, 0), 2), "{text}");
    }
}

#[test]
fn what_draws_until_it_is_content_ends() {
    let next = Mutex::new(0_u8);
    let random = move |buffer: &mut [u8]| {
        let mut next = next.lock();
        for byte in buffer {
            *byte = *next;
            *next = next.wrapping_add(1);
        }
    };
    let env = RenderEnvironment { random: Arc::new(random), ..env() };
    let text = r#"{{ len (randAlphaNum 5) }} {{ genPrivateKey "ecdsa" | trunc 5 }}"#;
    let (found, _) = said(&eight(text), json!({}), &env);
    assert_eq!(found.unwrap(), ["5 -----"; 8]);
}

#[test]
fn the_first_file_that_fails_is_reported_and_says_nothing_of_an_order() {
    let text = "{{ if ge # 3 }}{{ fail (printf \"it is %d\" #) }}{{ end }}";
    let (found, is_ordered) = said(&eight(text), json!({}), &env());
    assert_eq!(found.unwrap_err(), "execution error at (c/templates/4:1:16414): it is 3");
    assert!(!is_ordered);
}

#[test]
fn objects_are_looked_up_in_the_order_of_files() {
    let env = RenderEnvironment { cluster: Some(Arc::new(PodLookup)), ..env() };
    let text = r##"{{ (lookup "v1" "Pod" "ns#" "there").where }}"##;
    let (found, _) = said(&eight(text), json!({}), &env);
    assert_eq!(found.unwrap(), ["ns0", "ns1", "ns2", "ns3", "ns4", "ns5", "ns6", "ns7"]);
}
