//! Which servers may be asked, in words and by addresses.

use super::*;

fn refusal_text(egress: &EgressRules, url: &str) -> String {
    egress.admits(&Url::parse(url).unwrap()).err().map(|it| it.to_string()).unwrap_or_default()
}

fn nets(nets: &[&str]) -> Vec<IpNet> {
    nets.iter().map(|net| net.parse().unwrap()).collect()
}

#[test]
fn an_address_is_checked_however_it_is_written() {
    let public = EgressRules::Public(Arc::default());
    for url in ["http://127.1/", "http://2130706433/", "http://0x7f.1/", "https://[::1]:1/"] {
        assert!(
            refusal_text(&public, url)
                .ends_with("does not resolve to a public address; others are not allowed")
        );
        assert!(
            refusal_text(&EgressRules::Named(Arc::default()), url)
                .contains("resolves to windlass itself")
        );
        assert_eq!(refusal_text(&EgressRules::with_loopback(), url), "");
        assert_eq!(refusal_text(&EgressRules::Anywhere, url), "");
    }
    for url in ["https://1.1.1.1/a", "https://example.com/"] {
        assert_eq!(refusal_text(&public, url), "");
    }
    // Of which only web addresses know that they are numbers.
    for url in ["ssh://git@127.0.0.1/a", "socks5://0x7f000001:1080", "ssh://[::ffff:127.0.0.1]/"] {
        assert!(
            refusal_text(&EgressRules::Named(Arc::default()), url)
                .contains("resolves to windlass itself")
        );
    }
}

#[test]
fn metadata_are_refused_whatever_is_allowed() {
    let allowed = nets(&["169.254.0.0/16", "168.63.129.16/32", "::/0", "0.0.0.0/0"]);
    let rules = EgressDenyList::new(allowed).with_loopback();
    for egress in [EgressRules::Named(Arc::new(rules)), EgressRules::Public(Arc::default())] {
        for url in [
            "http://169.254.169.254/latest",
            "http://2852039166/",
            "http://[::ffff:169.254.169.254]/",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://[2002:a9fe:a9fe::]/",
            "http://[fe80::1]/",
            "http://[fd00:ec2::254]/",
            "http://100.100.100.200/",
            "http://168.63.129.16/metadata",
        ] {
            assert_ne!(refusal_text(&egress, url), "", "{url}");
        }
    }
    let error = refusal_text(&EgressRules::Named(Arc::default()), "http://168.63.129.16/");
    let expected =
        "`168.63.129.16` resolves to a link-local or cloud metadata address, which is not allowed";
    assert_eq!(error, expected);
}

#[test]
fn a_private_network_may_be_named_and_what_windlass_is_may_not() {
    let rules = Arc::new(EgressDenyList::default());
    let egress = EgressRules::Named(rules.clone());
    let all = ["http://10.0.0.1/", "http://[fd00::1]/", "http://192.168.1.1/", "http://a.svc/"];
    for url in all {
        assert_eq!(refusal_text(&egress, url), "", "{url}");
    }
    rules.learn_own(vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()]);
    for url in ["http://10.0.0.1:9090/a", "http://[::ffff:10.0.0.1]/", "http://[fd00::1]/"] {
        assert!(refusal_text(&egress, url).contains("resolves to windlass itself"), "{url}");
    }
    assert_eq!(refusal_text(&egress, "http://192.168.1.1/"), "");
}

#[test]
fn of_a_list_of_hosts_no_other_is_reached_and_no_metadata_service_either() {
    let list = EgressHostList::new(["Charts.example.com".to_owned(), "169.254.169.254".to_owned()]);
    let egress = EgressRules::Listed(Arc::new(list));
    let error = refusal_text(&egress, "https://evil.example.com/index.yaml");
    assert_eq!(error, "`evil.example.com` is not among the hosts that are allowed");
    let admitted = egress.admits(&"https://charts.example.com:8443/".parse().unwrap());
    assert_eq!(admitted, Ok(()));
    assert!(refusal_text(&egress, "http://169.254.169.254/").contains("metadata"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let error = runtime.block_on(egress.look_up("localhost", 0)).unwrap_err().to_string();
    assert!(error.contains("is not among the hosts"), "{error}");
}

#[test]
fn services_are_refused_where_that_was_learned_and_exceptions_are_made() {
    let rules = Arc::new(EgressDenyList::new(nets(&["10.96.7.0/24", "127.0.0.0/8"])));
    let egress = EgressRules::Named(rules.clone());
    assert_eq!(refusal_text(&egress, "http://10.96.0.1/"), "");
    rules.refuse_services(nets(&["10.96.0.0/12", "fd00:10:96::/108"]));
    for url in ["http://10.96.0.1/", "http://[fd00:10:96::1]/", "http://[64:ff9b::10.111.1.2]/"] {
        assert!(refusal_text(&egress, url).contains("--allow-source-cidrs"), "{url}");
    }
    assert_eq!(refusal_text(&egress, "http://10.96.7.9:3000/"), "");
    assert_eq!(refusal_text(&egress, "http://10.112.0.1/"), "");
    // What is allowed is an exception for Services, and not for what is never asked.
    assert!(refusal_text(&egress, "http://127.0.0.1/").contains("resolves to windlass itself"));
}

#[test]
fn a_name_is_checked_by_where_it_leads_and_a_proxy_is_not() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found = |egress: &EgressRules, exempt: Vec<String>| {
        let resolver = EgressResolver { egress: egress.clone(), exempt };
        runtime.block_on(resolver.resolve("localhost".parse().unwrap())).map(Iterator::count)
    };
    let public = EgressRules::Public(Arc::default());
    let error = found(&public, Vec::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`localhost` does not resolve to a public address; others are not allowed"
    );
    assert!(refusal(&*error).is_some());
    let error = found(&EgressRules::Named(Arc::default()), Vec::new()).unwrap_err().to_string();
    assert!(error.contains("`localhost` resolves to windlass itself"), "{error}");
    let proxy = host_of_proxy("localhost:3128").unwrap();
    assert!(found(&public, vec![proxy]).unwrap() > 0);
    assert!(found(&EgressRules::with_loopback(), Vec::new()).unwrap() > 0);
}
