//! Real processes: what a run sees, how it ends, what is left behind. Never a time.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use straddle::measure::campaign::{Campaign, CellRef, Ended, GroupCells};
use straddle::measure::cpus::CpuSet;
use straddle::measure::host::facts;
use straddle::measure::metric::MetricSpec;
use straddle::measure::pilot::{Limits, pilot};
use straddle::measure::record::{Better, Cell, Group, Header, Outcome, SCHEMA};
use straddle::measure::run::{End, Job, MAX_OUTPUT, Real, RunResult, Runner, TAIL};
use straddle::measure::stop::StopToken;
use straddle::measure::workload::Workload;
use straddle::measure::writer::{Existing, RecordWriter};

/// Long enough for any machine that is alive.
const LONG: Duration = Duration::from_secs(120);

struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench { dir: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.at(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn c(&self, name: &str, source: &str) -> PathBuf {
        let (path, file) = (self.at(name), self.at(&format!("{name}.c")));
        fs::write(&file, source).unwrap();
        let done = Command::new("cc").arg("-O1").arg("-o").arg(&path).arg(&file).status().unwrap();
        assert!(done.success());
        path
    }

    fn runner(&self, template: &str) -> Real {
        let path = Some(OsStr::new("/usr/bin:/bin"));
        let workload = Workload::new(template, &self.at("slot"), self.dir.path(), path).unwrap();
        Real::new(workload, CpuSet::resolve(None, 2).unwrap()).unwrap()
    }
}

fn run(runner: &mut Real, binary: &Path, stack_offset: u32, time_limit: Duration) -> RunResult {
    runner.run(&Job { binary, workers: None, stack_offset, time_limit, stop: &StopToken::new(None) }).unwrap()
}

fn once(body: &str) -> RunResult {
    let bench = Bench::new();
    let script = bench.script("variant", body);
    run(&mut bench.runner("{bin}"), &script, 0, LONG)
}

fn text(run: &RunResult) -> String {
    String::from_utf8(run.stdout.clone()).unwrap()
}

#[test]
fn a_run_tells_what_it_cost_and_said() {
    let bench = Bench::new();
    let spin =
        bench.c("variant", "#include <stdio.h>\nint main(){for(volatile long i=0;i<30000000;i++);puts(\"ns 12.5\");}");
    let r = run(&mut bench.runner("{bin}"), &spin, 0, LONG);
    assert_eq!((r.end, r.failure()), (End::Exited(0), None));
    assert!(r.user > 0.0 && r.wall > 0.0 && r.outside.span >= r.wall && r.outside.idle_ticks.is_some());
    assert_eq!(MetricSpec::parse("stdout:ns ([0-9.]+)", Better::Lower).unwrap().value(&r), Ok(12.5));
}

#[test]
fn a_failure_shows_the_status_and_the_last_words() {
    let r = once("echo one; echo oh dear >&2; exit 7");
    assert_eq!(r.end, End::Exited(7));
    assert_eq!(r.failure().unwrap(), "exits with status 7; its errors end: oh dear");
    assert!(once("kill -SEGV $$").failure().unwrap().starts_with("dies of SIGSEGV"));
    let silent = once("exec >&- 2>&-; :");
    assert_eq!((silent.end, silent.said()), (End::Exited(0), "it prints nothing".to_owned()));
}

fn alive(pid: &str) -> bool {
    // A zombie that nobody has reaped yet is dead.
    fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|s| !s.contains(") Z "))
}

#[test]
fn a_hang_is_killed_with_its_grandchildren() {
    let bench = Bench::new();
    let script = bench.script(
        "variant",
        "trap '' TERM INT; (trap '' TERM; echo $(exec sh -c 'echo $PPID') > pid; while :; do sleep 1000; done) & wait",
    );
    let r = run(&mut bench.runner("{bin}"), &script, 0, Duration::from_secs(2));
    assert_eq!(r.end, End::TimedOut);
    assert!(r.failure().unwrap().contains("still runs after"));
    assert!(!alive(&fs::read_to_string(bench.at("pid")).unwrap()));
}

#[test]
fn what_a_run_leaves_behind_is_ended() {
    let bench = Bench::new();
    let script = bench.script("variant", "sleep 1000 & echo $! > pid");
    assert_eq!(run(&mut bench.runner("{bin}"), &script, 0, LONG).end, End::Exited(0));
    assert!(!alive(&fs::read_to_string(bench.at("pid")).unwrap()));
}

#[test]
fn a_stop_kills_the_run() {
    let bench = Bench::new();
    let script = bench.script("variant", "sleep 1000");
    let stop = StopToken::new(Some(Duration::ZERO));
    let mut runner = bench.runner("{bin}");
    let r =
        runner.run(&Job { binary: &script, workers: None, stack_offset: 0, time_limit: LONG, stop: &stop }).unwrap();
    assert_eq!(r.end, End::Stopped);
}

#[test]
fn a_long_output_keeps_its_end_and_an_endless_one_is_stopped() {
    let r = once("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo ns 7");
    assert_eq!((r.end, r.stdout.len() as u64), (End::Exited(0), TAIL));
    assert_eq!(MetricSpec::parse("stdout:^ns ([0-9]+)", Better::Lower).unwrap().value(&r), Ok(7.0));
    let r = once("yes");
    assert_eq!(r.end, End::Flooded);
    assert!(r.failure().unwrap().contains(&format!("{} MiB", MAX_OUTPUT >> 20)));
}

/// Redirections by name open the capture file anew.
#[test]
fn output_by_way_of_dev_stdout_is_seen() {
    assert_eq!(text(&once("echo a; echo b >> /dev/stdout; echo c")), "a\nb\nc\n");
}

const STACK: &str = "#include <stdio.h>\n#include <stdint.h>\n\
    int main(){ char local[64]; printf(\"%lu\\n\", (unsigned long)(uintptr_t)local); }";

#[test]
fn the_stack_moves_by_the_planned_bytes_and_by_nothing_else() {
    let bench = Bench::new();
    let program = bench.c("variant", STACK);
    let twin = bench.at("a-twin-with-a-much-longer-name");
    fs::copy(&program, &twin).unwrap();
    let mut runner = bench.runner("{bin}");
    if !runner.fixed_addresses() {
        eprintln!("skipped: this machine does not let addresses be fixed");
        return;
    }
    let mut local =
        |binary: &Path, offset| text(&run(&mut runner, binary, offset, LONG)).trim().parse::<u64>().unwrap();
    let zero = local(&program, 0);
    for offset in [16, 48, 64, 1024, 4096, 0] {
        assert_eq!(zero - local(&program, offset), u64::from(offset));
        assert_eq!(zero - local(&twin, offset), u64::from(offset));
    }
}

#[test]
fn runs_differ_in_one_variable_only() {
    let bench = Bench::new();
    let script = bench.script("variant", "exec env");
    let mut runner = bench.runner("{bin}");
    let mut env = |offset| text(&run(&mut runner, &script, offset, LONG));
    let (a, b, again) = (env(0), env(64), env(0));
    assert_eq!(a, again);
    assert_eq!(b.len() - a.len(), 64);
    let rest = |t: &str| t.lines().filter(|l| !l.starts_with("STRADDLE_STACK=")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(rest(&a), rest(&b));
    assert_eq!(rest(&a).len() + 1, a.lines().count());
}

#[test]
fn a_run_has_a_group_a_folder_cpus_and_no_input() {
    let bench = Bench::new();
    let body = "pwd; cat; ls /proc/self/fd | tr '\\n' ' '; grep Cpus_allowed_list /proc/self/status; \
                ps -o pgid= -p $$ | tr -d ' '; echo $$";
    let script = bench.script("variant", body);
    let mut runner = bench.runner("{bin}");
    let r = run(&mut runner, &script, 0, LONG);
    let out = text(&r);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(Path::new(lines[0]), fs::canonicalize(bench.dir.path()).unwrap());
    let (fds, cpus) = lines[1].split_once("Cpus_allowed_list:").unwrap();
    // The fourth is the listing of the folder itself; none of ours leaks.
    assert_eq!(fds.trim(), "0 1 2 3");
    assert_eq!(cpus.trim().parse::<CpuSet>().unwrap(), *runner.cpus());
    assert_eq!(lines[2], lines[3]);
}

#[test]
fn a_workload_without_bin_finds_the_variant_in_the_linked_files_place() {
    let bench = Bench::new();
    let (a, b) = (bench.script("a", "echo a $0"), bench.script("b", "echo b $0"));
    bench.script("slot", "echo original");
    let mut runner = bench.runner("./slot && true");
    for (binary, wants) in [(&a, "a ./slot\n"), (&b, "b ./slot\n"), (&b, "b ./slot\n"), (&a, "a ./slot\n")] {
        assert_eq!(text(&run(&mut runner, binary, 0, LONG)), wants);
    }
    drop(runner);
    assert!(fs::read_to_string(bench.at("slot")).unwrap().contains("original"));
}

#[test]
fn what_cannot_be_executed_is_one_clear_line() {
    let bench = Bench::new();
    let file = bench.at("variant");
    fs::write(&file, "echo no shebang").unwrap();
    let mut runner = bench.runner("{bin}");
    let mut fails = || {
        let job = Job { binary: &file, workers: None, stack_offset: 0, time_limit: LONG, stop: &StopToken::new(None) };
        runner.run(&job).unwrap_err().to_string()
    };
    let denied = fails();
    assert!(denied.contains("executing") && denied.contains("permission denied"), "{denied}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    let format = fails();
    assert!(format.contains("exec format error") && format.contains("sh FILE"), "{format}");
}

#[test]
fn a_campaign_of_real_runs_ends_as_a_record() {
    let bench = Bench::new();
    let cell = |cell, path: &Path, stack_offset| CellRef { cell, path: path.to_owned(), stack_offset };
    let (base, patched) = (bench.script("base", "echo cost 2"), bench.script("patched", "echo cost 3"));
    let pair = |group, number: u32| GroupCells {
        group,
        number,
        cells: vec![cell(Cell::B0, &base, number * 16), cell(Cell::P0, &patched, number * 16)],
    };
    let metric = MetricSpec::parse("stdout:cost ([0-9]+)", Better::Lower).unwrap();
    let stop = StopToken::new(None);
    let mut runner = bench.runner("{bin}");
    let [first, second] = [cell(Cell::B0, &base, 0), cell(Cell::P0, &patched, 0)];
    let info = pilot(&mut runner, &metric, None, &Limits::default(), &first, &second, &stop).unwrap().unwrap();
    assert_eq!((info.base, info.patched), (2.0, 3.0));

    let header: Header = serde_json::from_value(serde_json::json!({
        "schema": SCHEMA, "tool": "0", "case": "", "seed": "0x1", "started": "", "command": "{bin}",
        "host": facts(runner.cpus(), runner.fixed_addresses()), "metric": metric.metric(), "margin_percent": 1.0,
        "max_blocks": 0, "matched": {"units": 0, "of": 0, "rest": []}, "suspects": [], "identical": false, "hashes": {}
    }))
    .unwrap();
    let path = bench.at("record.jsonl");
    let writer = RecordWriter::create(&path, &header, Existing::Refuse).unwrap();
    let mut campaign = Campaign::new(runner, writer, header, metric, 1, info.time_limit);
    let groups = [pair(Group::Twin, 0), pair(Group::Layout, 1)];
    assert_eq!(campaign.rounds(&groups, 0..3, &stop, &mut |_| {}).unwrap(), Ended::Done);
    let firsts: Vec<_> = campaign.record().samples.iter().filter(|s| s.attempt == 0).collect();
    assert_eq!(firsts.len(), 12);
    for s in &firsts {
        assert_eq!((s.outcome.clone(), s.stack_offset), (Outcome::Ok, s.number * 16));
        assert_eq!(s.value, Some(if s.cell == Cell::B0 { 2.0 } else { 3.0 }));
    }
    assert!(campaign.record().samples.is_sorted_by(|a, b| a.start_ns < b.start_ns));
    let lines = fs::read_to_string(path).unwrap().lines().count();
    assert_eq!(lines, 1 + campaign.record().samples.len());
}
