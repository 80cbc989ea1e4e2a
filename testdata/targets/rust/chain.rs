//! The chain in Rust: generics, closures, trait objects, panics that are
//! caught, and named threads. It makes the scripts of include/script.h and
//! writes the report of include/chain.h; `--cfg mangling="legacy"` says that
//! the names are mangled the old way, which loses some of their parts.

use std::io::{BufRead, Write};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::{Arc, Barrier};

const FUNCS: usize = 8;
const MAX_DEPTH: u16 = 12;
const APART: u64 = 45_000;
const ROOT: u8 = 8;

#[repr(C)]
struct Timespec {
    sec: i64,
    nsec: i64,
}

extern "C" {
    fn clock_gettime(clock: i32, t: *mut Timespec) -> i32;
    fn nanosleep(t: *const Timespec, left: *mut Timespec) -> i32;
    fn ppoll(fds: *const u8, n: u64, t: *const Timespec, mask: *const u8) -> i32;
    fn gettid() -> i32;
    fn prctl(op: i32, a: u64, b: u64, c: u64, d: u64) -> i32;
}

#[inline(always)]
fn now() -> u64 {
    let mut t = Timespec { sec: 0, nsec: 0 };
    unsafe { clock_gettime(1, &mut t) };
    t.sec as u64 * 1_000_000_000 + t.nsec as u64
}

struct Node {
    gap: u64,
    pre: u64,
    post: u64,
    size: usize,
    depth: u16,
    func: u8,
    work: u8,
}

struct Script {
    nodes: Vec<Node>,
    state: u64,
    unit: u64,
}

impl Script {
    fn new(seconds: u64, seed: u64, unit: u64, thread: u64) -> Script {
        let state = (seed + 1000 * thread + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).max(1);
        let mut s = Script { nodes: Vec::new(), state, unit };
        s.node(ROOT, 0, seconds * 1_000_000 * 6 / unit);
        s
    }

    fn random(&mut self, n: u32) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        u64::from((self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) as u32 % n)
    }

    fn time(&mut self) -> u64 {
        if self.random(3) == 0 {
            return 30_000 + self.random(90_001);
        }
        2_000 + self.random(6_001)
    }

    fn scale(&self, us: u64) -> u64 {
        us * self.unit * 1000 / 6
    }

    fn node(&mut self, func: u8, depth: u16, budget: u64) -> u64 {
        let i = self.nodes.len();
        let (mut work, mut pre, mut post) = (1, 0, 0);
        if depth > 0 {
            work = self.random(3) as u8;
            pre = if self.random(4) == 0 { 0 } else { self.time() };
        }
        self.nodes.push(Node { gap: 0, pre: self.scale(pre), post: 0, size: 0, depth, func, work });
        let mut total = pre;
        let mut last = [None; FUNCS];
        loop {
            let enough = if depth == 0 {
                total >= budget
            } else {
                depth >= MAX_DEPTH || total + 30_000 >= budget || self.random(4) == 0
            };
            if enough {
                break;
            }
            let mut gap = if self.random(4) == 0 { self.time() } else { 0 };
            let callee = self.random(FUNCS as u32);
            if let Some(end) = last[callee as usize] {
                if total + gap < end + APART {
                    gap = end + APART - total;
                }
            }
            total += gap;
            let most = if depth == 0 { 30_000 + self.random(600_000) } else { budget.saturating_sub(total) };
            let child = self.nodes.len();
            total += self.node(callee as u8, depth + 1, most);
            self.nodes[child].gap = self.scale(gap);
            last[callee as usize] = Some(total);
        }
        if depth > 0 {
            post = if self.random(2) != 0 { self.time() } else { 0 };
            if total + post == 0 {
                post = self.time();
            }
        }
        self.nodes[i].post = self.scale(post);
        self.nodes[i].size = self.nodes.len() - i;
        total + post
    }

    fn hash(&self) -> u64 {
        let mut h: u64 = 0xcbf2_9ce4_8422_2325;
        for n in &self.nodes {
            for w in [n.func.into(), n.work.into(), n.depth.into(), n.gap, n.pre, n.post] {
                for b in u64::to_le_bytes(w) {
                    h = (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
                }
            }
        }
        h
    }
}

#[derive(Clone, Copy, Default)]
struct Rec {
    call: u64,
    begin: u64,
    end: u64,
    ret: u64,
}

struct Run {
    script: Script,
    recs: Vec<Rec>,
    name: String,
    tid: i32,
    interrupted: u64,
}

fn spin(deadline: u64) {
    while now() < deadline {
        for i in 0..1000 {
            std::hint::black_box(i);
        }
    }
}

#[inline(always)]
fn work(r: &mut Run, kind: u8, ns: u64) {
    if ns == 0 {
        return;
    }
    let deadline = now() + ns;
    if kind == 0 {
        return spin(deadline);
    }
    loop {
        let t = now();
        if t >= deadline {
            return;
        }
        let left = deadline - t;
        let t = Timespec { sec: (left / 1_000_000_000) as i64, nsec: (left % 1_000_000_000) as i64 };
        let bad = unsafe {
            match kind {
                1 => nanosleep(&t, std::ptr::null_mut()),
                _ => ppoll(std::ptr::null(), 0, &t, std::ptr::null()),
            }
        };
        if bad < 0 && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted {
            r.interrupted += 1;
        }
    }
}

static TABLE: [fn(&mut Run, usize); FUNCS] =
    [alpha, beta, gamma, delta, epsilon, zeta::<48>, eta::<u64>, theta::<Vec<String>>];

// A macro, so that it adds no frame, inlined or real.
macro_rules! body {
    ($r:ident, $i:ident) => {{
        $r.recs[$i].begin = now();
        let (kind, pre, post, end) = {
            let n = &$r.script.nodes[$i];
            (n.work, n.pre, n.post, $i + n.size)
        };
        work($r, kind, pre);
        let mut child = $i + 1;
        while child < end {
            let (gap, func) = {
                let n = &$r.script.nodes[child];
                (n.gap, n.func)
            };
            work($r, kind, gap);
            $r.recs[child].call = now();
            TABLE[func as usize]($r, child);
            $r.recs[child].ret = now();
            child += $r.script.nodes[child].size;
        }
        work($r, kind, post);
        $r.recs[$i].end = now();
        std::hint::black_box(&$r.recs[$i]);
    }};
}

#[inline(never)]
fn alpha(r: &mut Run, i: usize) {
    body!(r, i)
}

/// Calls a closure that is not known where it is called.
#[inline(never)]
fn beta(r: &mut Run, i: usize) {
    let closure = |r: &mut Run| body!(r, i);
    let f: &dyn Fn(&mut Run) = std::hint::black_box(&closure);
    f(r);
    std::hint::black_box(i);
}

/// Its callee panics when it is done, through a frame that owns something.
#[inline(never)]
fn gamma(r: &mut Run, i: usize) {
    let caught = catch_unwind(AssertUnwindSafe(|| gamma_panics(r, i)));
    std::hint::black_box(caught.is_err());
}

#[inline(never)]
fn gamma_panics(r: &mut Run, i: usize) {
    let owned = std::hint::black_box(vec![i; 10]);
    body!(r, i);
    raise(owned.len());
    std::hint::black_box(&owned);
}

#[inline(never)]
fn raise(n: usize) {
    if std::hint::black_box(n) > 0 {
        resume_unwind(Box::new(n)); // a panic without the hook's message
    }
}

trait Shape {
    fn draw(&self, r: &mut Run, i: usize);
}

struct Circle;
struct Square(u32);

impl Shape for Circle {
    #[inline(never)]
    fn draw(&self, r: &mut Run, i: usize) {
        body!(r, i)
    }
}

impl Shape for Square {
    #[inline(never)]
    fn draw(&self, r: &mut Run, i: usize) {
        std::hint::black_box(self.0);
        body!(r, i)
    }
}

#[inline(never)]
fn delta(r: &mut Run, i: usize) {
    let s: &dyn Shape = std::hint::black_box(&Circle);
    s.draw(r, i);
    std::hint::black_box(i);
}

#[inline(never)]
fn epsilon(r: &mut Run, i: usize) {
    let s: &dyn Shape = std::hint::black_box(&Square(4));
    s.draw(r, i);
    std::hint::black_box(i);
}

#[inline(never)]
fn zeta<const N: usize>(r: &mut Run, i: usize) {
    let room = std::hint::black_box([0u8; N]);
    body!(r, i);
    std::hint::black_box(&room);
}

#[inline(never)]
fn eta<T: Default>(r: &mut Run, i: usize) {
    let value = std::hint::black_box(T::default());
    body!(r, i);
    std::hint::black_box(&value);
}

#[inline(never)]
fn theta<T: Default + Clone>(r: &mut Run, i: usize) {
    let value = std::hint::black_box(T::default().clone());
    body!(r, i);
    std::hint::black_box(&value);
}

#[inline(never)]
fn root(r: &mut Run, i: usize) {
    body!(r, i)
}

/// The frames of each function, outermost first.
#[cfg(not(mangling = "legacy"))]
const SHAPES: [&[&str]; FUNCS + 1] = [
    &["chain::alpha"],
    &["chain::beta", "chain::beta::{closure#0}"],
    &["chain::gamma", "chain::gamma_panics"],
    &["chain::delta", "<chain::Circle as chain::Shape>::draw"],
    &["chain::epsilon", "<chain::Square as chain::Shape>::draw"],
    &["chain::zeta::<48>"],
    &["chain::eta::<u64>"],
    &["chain::theta::<alloc::vec::Vec<alloc::string::String>>"],
    &["chain::root"],
];
#[cfg(mangling = "legacy")]
const SHAPES: [&[&str]; FUNCS + 1] = [
    &["chain::alpha"],
    &["chain::beta", "chain::beta::{{closure}}"],
    &["chain::gamma", "chain::gamma_panics"],
    &["chain::delta", "<chain::Circle as chain::Shape>::draw"],
    &["chain::epsilon", "<chain::Square as chain::Shape>::draw"],
    &["chain::zeta"],
    &["chain::eta"],
    &["chain::theta"],
    &["chain::root"],
];

impl Run {
    fn start(&mut self) {
        self.tid = unsafe { gettid() };
        self.recs[0].call = now();
        root(self, 0);
        self.recs[0].ret = now();
    }

    fn write(&self, out: &mut impl Write) -> std::io::Result<u64> {
        let mut at = [0; MAX_DEPTH as usize + 1];
        let mut lines = 0;
        for (n, c) in self.script.nodes.iter().zip(&self.recs) {
            let d = n.depth as usize;
            let mut depth = if d == 0 { 0 } else { at[d - 1] + 1 };
            for func in SHAPES[n.func as usize] {
                writeln!(
                    out,
                    "{{\"thread\":\"{}\",\"tid\":{},\"func\":\"{}\",\"depth\":{},\"call\":{},\"begin\":{},\"end\":{},\"return\":{},\"work\":\"{}\"}}",
                    self.name, self.tid, func, depth, c.call, c.begin, c.end, c.ret,
                    ["spin", "sleep", "poll"][n.work as usize]
                )?;
                depth += 1;
                lines += 1;
            }
            at[d] = depth - 1;
        }
        Ok(lines)
    }
}

fn wait_line() {
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line).unwrap_or(0) == 0 {
        std::process::exit(3); // whoever started the program is gone
    }
}

fn usage() -> ! {
    eprintln!("usage: chain [--seconds N] [--seed N] [--unit N] [--threads N] [--report FILE] [--wait-go] [--wait-end]");
    std::process::exit(2)
}

fn main() {
    let (mut seconds, mut seed, mut unit, mut threads) = (1, 1, 6, 0);
    let (mut report, mut wait_go, mut wait_end) = (None, false, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next().and_then(|s| s.parse::<u64>().ok()).unwrap_or_else(|| usage());
        match arg.as_str() {
            "--seconds" => seconds = number(),
            "--seed" => seed = number(),
            "--unit" => unit = number(),
            "--threads" => threads = number(),
            "--report" => report = args.next(),
            "--wait-go" => wait_go = true,
            "--wait-end" => wait_end = true,
            _ => usage(),
        }
    }
    if seconds == 0 || seconds > 600 || unit == 0 || threads > 64 {
        usage();
    }
    let prepare = |thread: u64, name: String| {
        let script = Script::new(seconds, seed, unit, thread);
        let recs = vec![Rec { call: 1, ..Rec::default() }; script.nodes.len()]; // not zero: the pages are touched
        Run { script, recs, name, tid: 0, interrupted: 0 }
    };
    let barrier = Arc::new(Barrier::new(threads as usize + 1));
    let workers: Vec<_> = (0..threads)
        .map(|k| {
            let name = format!("worker-{k}");
            let mut run = prepare(k + 1, name.clone());
            let barrier = Arc::clone(&barrier);
            let body = move || {
                barrier.wait();
                barrier.wait();
                run.start();
                run
            };
            std::thread::Builder::new().name(name).spawn(body).expect("thread")
        })
        .collect();
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let mut runs = vec![prepare(0, comm.trim_end().to_string())];
    barrier.wait();
    unsafe { prctl(0x5961_6d61, u64::MAX, 0, 0, 0) };
    if wait_go {
        println!("ready {}", std::process::id());
        wait_line();
    }
    barrier.wait();
    runs[0].start();
    runs.extend(workers.into_iter().map(|w| w.join().expect("worker")));
    if let Some(path) = report {
        let mut out = std::io::BufWriter::new(std::fs::File::create(path).expect("report"));
        let (mut calls, mut interrupted, mut script) = (0, 0, 0u64);
        for r in &runs {
            calls += r.write(&mut out).expect("report");
            interrupted += r.interrupted;
            script = script.wrapping_add(r.script.hash());
        }
        writeln!(out, "{{\"summary\":{{\"calls\":{calls},\"interrupted\":{interrupted},\"script\":\"{script:016x}\"}}}}")
            .and_then(|()| out.flush())
            .expect("report");
    }
    if wait_end {
        println!("done");
        wait_line();
    }
}
