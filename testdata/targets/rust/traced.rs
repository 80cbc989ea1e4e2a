// traced: a function that every fifth call leaves by a panic, which is caught.
//
//   traced N
//
// prints "ready PID", waits for a line of input, makes N calls, prints "truth CALLS
// RETURNED LEFT" and "done", and waits for the next line or the end of its input.
use std::io::BufRead;
use std::panic::catch_unwind;

mod shop {
    use std::hint::black_box;

    #[inline(never)]
    fn price(i: u64) -> u64 {
        if black_box(i) % 5 == 4 {
            panic!("no price of {i}");
        }
        i * 3
    }

    /// It owns memory, which the panic frees on its way.
    #[inline(never)]
    pub fn total(i: u64) -> u64 {
        let items = black_box(vec![i; 4]);
        let sum = price(items[1]) + items[2];
        black_box(&items);
        sum
    }
}

fn main() {
    let n: u64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or_else(|| std::process::exit(2));
    std::panic::set_hook(Box::new(|_| {})); // without a message for each
    println!("ready {}", std::process::id());
    for _ in std::io::stdin().lock().lines() {
        let (mut returned, mut left) = (0, 0);
        for i in 0..n {
            match catch_unwind(|| shop::total(std::hint::black_box(i))) {
                Ok(x) => {
                    std::hint::black_box(x);
                    returned += 1;
                }
                Err(_) => left += 1,
            }
        }
        println!("truth {} {returned} {left}\ndone", returned + left);
    }
}
