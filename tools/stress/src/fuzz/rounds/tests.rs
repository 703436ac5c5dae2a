//! Tests that a number always gives the same input, and that every target reads its inputs in the repository.

use super::*;

#[test]
fn every_target_reads_what_is_kept_for_it() {
    for target in TARGETS {
        let work = || {
            let kept = inputs(target).unwrap();
            for number in 0..kept.len() as u64 + 50 {
                let read = input(target, &kept, number, 7);
                assert_eq!(read, input(target, &kept, number, 7));
                (target.read)(&read);
            }
        };
        std::thread::Builder::new().stack_size(target.stack).spawn(work).unwrap().join().unwrap();
    }
}

#[test]
fn inputs_are_changed_and_not_without_end() {
    for target in TARGETS {
        let kept = inputs(target).unwrap();
        let first = kept.len() as u64;
        let changed = (first..first + 200).map(|number| input(target, &kept, number, 1));
        let changed: Vec<_> = changed.inspect(|it| assert!(it.len() <= 256 << 10)).collect();
        let same = changed.iter().filter(|it| kept.contains(it)).count();
        assert!(same < 100, "{}: {same}", target.name);
    }
}

#[test]
fn every_end_of_a_reader_but_success_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("at"), "7").unwrap();
    let ended = |script: &str| {
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        follow(&mut child, folder.path(), CPU_TIME_LIMIT).unwrap()
    };
    assert_eq!(ended("exit 0"), None);
    assert_eq!(ended("exit 101"), Some("exit status: 101".to_owned()));
    assert!(ended("kill -ABRT $$").is_some_and(|it| it.contains("signal: 6")));
}

#[test]
fn a_reader_that_comes_to_no_end_is_ended_by_the_time_that_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("at"), "7").unwrap();
    let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let fault = follow(&mut child, folder.path(), Duration::from_secs(1)).unwrap().unwrap();
    assert_eq!(fault, "not done within 1 s of a processor");
}
