// Threads that take turns with a lock of Rust's standard library, and log
// when. Usage: rustturns KIND THREADS SECONDS MICROSECONDS; KIND is mutex,
// rwlock (all write), rwlock-mixed (every second thread reads) or condvar (the
// first thread gives). The output is that of include/turns.h.
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, RwLock};
use std::thread;
use std::time::Duration;

static MUTEX: Mutex<u64> = Mutex::new(0);
static RWLOCK: RwLock<u64> = RwLock::new(0);
static CONDVAR: Condvar = Condvar::new();
static TIDS: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
static BEGIN: AtomicBool = AtomicBool::new(false);
static END: AtomicU64 = AtomicU64::new(0);

#[repr(C)]
struct Timespec {
    sec: i64,
    nsec: i64,
}

extern "C" {
    fn clock_gettime(clock: i32, t: *mut Timespec) -> i32;
    fn prctl(option: i32, ...) -> i32;
}

fn now() -> u64 {
    let mut t = Timespec { sec: 0, nsec: 0 };
    unsafe { clock_gettime(1, &mut t) }; // CLOCK_MONOTONIC
    t.sec as u64 * 1_000_000_000 + t.nsec as u64
}

fn tid() -> usize {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

// One thread's log: (lock, from, to).
#[derive(Default)]
struct Log {
    tid: usize,
    waits: Vec<(usize, u64, u64)>,
    holds: Vec<(usize, u64, u64)>,
}

struct Worker {
    i: usize,
    n: u64,
    kind: String,
    us: u64,
    seed: u64,
    log: Log,
}

impl Worker {
    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.seed >> 33
    }

    fn work(&mut self) {
        let us = self.us / 2 + self.random() % (self.us + 1);
        if self.random() % 4 == 0 {
            let end = now() + us * 1000;
            while now() < end {}
        } else {
            thread::sleep(Duration::from_micros(us));
        }
    }

    fn on(&self) -> bool {
        now() < END.load(SeqCst)
    }

    fn run(mut self) -> Log {
        self.log.tid = tid();
        TIDS[self.i].store(self.log.tid, SeqCst);
        while !BEGIN.load(SeqCst) {
            thread::sleep(Duration::from_millis(2));
        }
        if self.kind == "condvar" {
            self.conditional();
        } else {
            while self.on() {
                self.turn();
                let us = 1 + self.random() % self.us;
                thread::sleep(Duration::from_micros(us));
            }
        }
        self.log
    }

    fn turn(&mut self) {
        let wanted = now();
        let (got, left, addr);
        if self.kind == "mutex" {
            let _g = MUTEX.lock().unwrap();
            got = now();
            self.work();
            left = now();
            addr = &MUTEX as *const _ as usize;
        } else {
            addr = &RWLOCK as *const _ as usize;
            if self.kind == "rwlock-mixed" && self.i % 2 == 1 {
                let _g = RWLOCK.read().unwrap();
                got = now();
                self.work();
                left = now();
            } else {
                let _g = RWLOCK.write().unwrap();
                got = now();
                self.work();
                left = now();
            }
        }
        self.log.waits.push((addr, wanted, got));
        self.log.holds.push((addr, got, left));
    }

    fn conditional(&mut self) {
        if self.i == 0 {
            while self.on() {
                self.work();
                *MUTEX.lock().unwrap() = self.n - 1;
                CONDVAR.notify_all();
            }
            *MUTEX.lock().unwrap() = 1 << 40;
            CONDVAR.notify_all();
            return;
        }
        let addr = &CONDVAR as *const _ as usize;
        while self.on() {
            let mut tokens = MUTEX.lock().unwrap();
            while *tokens == 0 {
                let wanted = now();
                tokens = CONDVAR.wait(tokens).unwrap();
                self.log.waits.push((addr, wanted, now()));
            }
            *tokens -= 1;
        }
    }
}

fn list(name: &str, logs: &[Log], of: fn(&Log) -> &Vec<(usize, u64, u64)>) -> String {
    let all: Vec<String> = logs
        .iter()
        .flat_map(|l| of(l).iter().map(move |e| format!("[{},{},{},{}]", l.tid, e.0, e.1, e.2)))
        .collect();
    format!("\"{}\":[{}]", name, all.join(","))
}

fn main() {
    unsafe { prctl(0x59616d61, u64::MAX, 0u64, 0u64, 0u64) }; // PR_SET_PTRACER
    let args: Vec<String> = std::env::args().collect();
    let kind = args[1].clone();
    let n: usize = args[2].parse().unwrap();
    let seconds: u64 = args[3].parse().unwrap();
    let us: u64 = args[4].parse().unwrap();
    let threads: Vec<_> = (0..n)
        .map(|i| {
            let w = Worker { i, n: n as u64, kind: kind.clone(), us, seed: i as u64 + 1, log: Log::default() };
            thread::spawn(move || w.run())
        })
        .collect();
    while TIDS[..n].iter().any(|t| t.load(SeqCst) == 0) {
        thread::sleep(Duration::from_millis(1));
    }
    let addr = match kind.as_str() {
        "mutex" => &MUTEX as *const _ as usize,
        "condvar" => &CONDVAR as *const _ as usize,
        _ => &RWLOCK as *const _ as usize,
    };
    let tids: Vec<String> = TIDS[..n].iter().map(|t| t.load(SeqCst).to_string()).collect();
    println!("{{\"lock\":\"{:#x}\",\"pid\":{},\"threads\":[{}]}}", addr, std::process::id(), tids.join(","));
    std::io::stdout().flush().unwrap();
    if std::io::stdin().lock().lines().next().is_none() {
        std::process::exit(3);
    }
    END.store(now() + seconds * 1_000_000_000, SeqCst);
    BEGIN.store(true, SeqCst);
    let logs: Vec<Log> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    println!("{{{},{}}}", list("waits", &logs, |l| &l.waits), list("holds", &logs, |l| &l.holds));
}
