// The locks of Rust's standard library: one thread holds, one waits. Usage:
// rust KIND. Prints {"kind":…,"lock":"0x…","holder":TID,"waiters":[TID]},
// waits for a line on standard input and ends.
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, RwLock};
use std::thread;

static MUTEX: Mutex<u64> = Mutex::new(0);
static RWLOCK: RwLock<u64> = RwLock::new(0);
static CONDVAR: Condvar = Condvar::new();
static HOLDER: AtomicI32 = AtomicI32::new(0);
static WAITER: AtomicI32 = AtomicI32::new(0);
static JOINED: AtomicUsize = AtomicUsize::new(0);

fn tid() -> i32 {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

fn forever() -> ! {
    HOLDER.store(tid(), SeqCst);
    loop {
        thread::sleep(std::time::Duration::from_secs(3600));
    }
}

fn main() {
    extern "C" {
        fn prctl(option: i32, ...) -> i32;
    }
    unsafe { prctl(0x59616d61, u64::MAX, 0u64, 0u64, 0u64) }; // PR_SET_PTRACER
    let kind = std::env::args().nth(1).unwrap();
    let k = kind.clone();
    let holder = thread::spawn(move || match k.as_str() {
        "mutex" => {
            let _g = MUTEX.lock().unwrap();
            forever()
        }
        "rwlock-read" | "rwlock-write" => {
            let _g = RWLOCK.write().unwrap();
            forever()
        }
        _ => forever(),
    });
    while HOLDER.load(SeqCst) == 0 {
        thread::yield_now();
    }
    let k = kind.clone();
    thread::spawn(move || {
        WAITER.store(tid(), SeqCst);
        match k.as_str() {
            "mutex" => drop(MUTEX.lock()),
            "rwlock-read" => drop(RWLOCK.read()),
            "rwlock-write" => drop(RWLOCK.write()),
            "condvar" => drop(CONDVAR.wait(MUTEX.lock().unwrap())),
            "park" => thread::park(),
            "join" => drop(holder.join()),
            _ => panic!("kind"),
        }
        JOINED.store(1, SeqCst);
    });
    while WAITER.load(SeqCst) == 0 {
        thread::yield_now();
    }
    let addr = match kind.as_str() {
        "mutex" => &MUTEX as *const _ as usize,
        "rwlock-read" | "rwlock-write" => &RWLOCK as *const _ as usize,
        "condvar" => &CONDVAR as *const _ as usize,
        _ => 0,
    };
    println!("{{\"kind\":\"{}\",\"lock\":\"{:#x}\",\"holder\":{},\"waiters\":[{}]}}", kind, addr, HOLDER.load(SeqCst), WAITER.load(SeqCst));
    std::io::stdout().flush().unwrap();
    std::io::stdin().lock().lines().next();
}
