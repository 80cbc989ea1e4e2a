import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Threads that block in as many ways, below code that is interpreted or compiled and
 * inlined, and that the program says itself: a line "stack NAME FRAME,FRAME,…" each,
 * innermost first, a frame as Class.method:line. Then "parked".
 */
public class Park {
    static final Object monitor = new Object(), waited = new Object();
    static final ReentrantLock lock = new ReentrantLock();
    static final CountDownLatch inside = new CountDownLatch(8);
    static long sum;

    interface Way { void block() throws Exception; }

    static int small(int n) { return n * 31 + 7; }

    static int middle(int n, Way way) throws Exception {
        int r = small(n);
        if (way != null) {
            inside.countDown();
            way.block();
        }
        return r + small(r);
    }

    static int deep(int depth, int n, Way way) throws Exception {
        if (depth == 0)
            return middle(n, way);
        return deep(depth - 1, n + 1, way) + 1;
    }

    /** Runs often enough without blocking to be compiled. */
    static void warm(int times, Way way) throws Exception {
        for (int i = 0; i < times; i++)
            sum += deep(i % 9, i, null);
        sum += deep(12, 1, way);
    }

    static void start(String name, int times, Way way) {
        Thread t = new Thread(new Runnable() {
            @Override public void run() {
                try {
                    warm(times, way);
                } catch (Exception e) {
                    throw new RuntimeException(e);
                }
            }
        }, name);
        t.setDaemon(true);
        t.start();
    }

    static void enter() { synchronized (monitor) { sum++; } }

    static synchronized void own() throws Exception { Thread.sleep(1000000); }

    static void all(int times, String kind) {
        start(kind + "-enter-with-a-name-that-is-longer-than-the-kernel's", times, Park::enter);
        start(kind + "-wait", times, () -> { synchronized (waited) { waited.wait(); } });
        start(kind + "-p\u00e4rk-\u2603", times, () -> LockSupport.park());
        start(kind + "-lock", times, () -> lock.lock());
    }

    public static void main(String[] args) throws Exception {
        synchronized (monitor) {
            lock.lock();
            all(0, "cold");
            all(30000, "warm");
            inside.await();
            for (Thread t : Thread.getAllStackTraces().keySet())
                if (t.getName().contains("-"))
                    while (t.getState() != Thread.State.BLOCKED && t.getState() != Thread.State.WAITING && t.getState() != Thread.State.TIMED_WAITING && t.isDaemon())
                        Thread.sleep(1);
            for (var e : Thread.getAllStackTraces().entrySet()) {
                if (e.getKey() == Thread.currentThread())
                    continue;
                StringBuilder b = new StringBuilder("stack " + e.getKey().getName().replace(' ', '_') + " ");
                for (StackTraceElement f : e.getValue())
                    b.append(f.getClassName()).append('.').append(f.getMethodName()).append(':').append(f.getLineNumber()).append(',');
                System.out.write((b + "\n").getBytes(java.nio.charset.StandardCharsets.UTF_8));
            }
            System.out.println("parked");
            System.in.read();
        }
    }
}
