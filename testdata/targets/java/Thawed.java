import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * Virtual threads (Java 21 and later) that run with most callers in the heap. "bottom" calls DEPTH
 * functions and parks; "middle" then returns some, calls others and parks again. Each prints its
 * stack as Java says it is, and runs on without leaving its last function. Then "ready".
 */
public class Thawed {
    static final CountDownLatch runs = new CountDownLatch(2);
    static volatile long sum;
    static volatile Object garbage;

    static void start(String name, Runnable r) throws Exception {
        Object b = Thread.class.getMethod("ofVirtual").invoke(null);
        Class<?> builder = Class.forName("java.lang.Thread$Builder");
        builder.getMethod("name", String.class).invoke(b, name);
        builder.getMethod("start", Runnable.class).invoke(b, r);
    }

    /** Some arguments are passed on the stack. */
    static long many(int n, long a, long b, long c, long d, long e, long f, long g, long h, Runnable r) {
        long x = n % 3 == 0 ? few(n - 1, r) : many(n - 1, b, c, d, e, f, g, h, a, r);
        return x + a + h;
    }

    static long few(int n, Runnable r) {
        if (n <= 0) {
            r.run();
            return 1;
        }
        if (n % 2 == 0)
            return few(n - 1, r) + 1;
        double local = many(n - 1, n, 2, 3, 4, 5, 6, 7, 8, r);
        return (long) (local * 2);
    }

    static void park() {
        long until = System.nanoTime() + 10_000_000;
        while (System.nanoTime() < until)
            LockSupport.parkNanos(10_000_000);
    }

    static void spin(String name) {
        park();
        StringBuilder s = new StringBuilder();
        StackWalker.getInstance().forEach(f -> s.append(f.getClassName() + "." + f.getMethodName() + ":" + f.getLineNumber() + ","));
        System.out.println("stack " + name + " " + s);
        runs.countDown();
        for (;;) {
            sum++;
            if ((sum & 0xfffff) == 0)
                garbage = new byte[1 << 12];
        }
    }

    public static void main(String[] args) throws Exception {
        int depth = Integer.parseInt(args[0]);
        for (int i = 0; i < Integer.parseInt(args[1]); i++) // until they are compiled
            sum += few(depth, () -> sum++);
        start("bottom", () -> few(depth, () -> spin("bottom")));
        start("middle", () -> few(depth / 2, () -> {
            few(depth / 2, Thawed::park);
            few(depth / 4, () -> spin("middle"));
        }));
        // Java 21 may leave a thread in the queue while one of two carriers is idle and the other one runs on
        // (JDK-8322732). Another thread wakes the idle one.
        while (!runs.await(200, TimeUnit.MILLISECONDS))
            start("wakes", () -> sum++);
        System.out.println("ready");
        System.in.read();
    }
}
