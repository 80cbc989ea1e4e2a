use std::collections::HashMap;

mod inner {
    #[inline(always)]
    pub fn leaf(x: u64) -> u64 {
        x.wrapping_mul(31) ^ (x >> 3)
    }

    pub struct Store<T> {
        pub v: Vec<T>,
    }

    impl<T: Clone + Ord> Store<T> {
        pub fn sorted(&self) -> Vec<T> {
            let mut v = self.v.clone();
            v.sort();
            v
        }
    }
}

fn main() {
    let mut m: HashMap<String, u64> = HashMap::new();
    for a in std::env::args() {
        *m.entry(a.clone()).or_insert(0) += inner::leaf(a.len() as u64);
    }
    let s = inner::Store { v: m.values().cloned().collect() };
    println!("{:?} {:?}", m, s.sorted());
    let c: Vec<_> = s.v.iter().map(|x| inner::leaf(*x)).filter(|x| x % 2 == 0).collect();
    println!("{:?}", c);
}
