/** Threads that run, 20 calls deep: Busy N. Then "busy". */
public class Busy {
    static final long[] sink = new long[1024];

    static long leaf(long n, long k) {
        long s = 0;
        for (long i = 0; i < n; i++)
            s += i ^ k;
        return s;
    }

    static long deep(int d, long k) { return (d > 0 ? deep(d - 1, k) : leaf(20000, k)) + 1; }

    static void work(int k) {
        for (;;)
            sink[16 * (k % 64)] += deep(20, k);
    }

    public static void main(String[] args) throws Exception {
        int n = args.length > 0 ? Integer.parseInt(args[0]) : 10;
        for (int i = 0; i < n; i++) {
            int k = i;
            Thread t = new Thread(() -> work(k), "busy-" + i);
            t.setDaemon(true);
            t.start();
        }
        System.out.println("busy");
        System.in.read();
    }
}
