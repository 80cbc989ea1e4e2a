import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Crowd THREADS: threads that block in as many ways and at as many depths, below code
 * that is interpreted, compiled and inlined, lambdas and method handles. Then "parked".
 */
public class Crowd {
    static final Object monitor = new Object(), waited = new Object();
    static final ReentrantLock lock = new ReentrantLock(), free = new ReentrantLock();
    static final Semaphore none = new Semaphore(0);
    static final SynchronousQueue<Object> queue = new SynchronousQueue<>();
    static long sum;

    interface Way { void block() throws Exception; }

    static int small(int n) { return n * 31 + 7; }

    static int leaf(int n, Way way) throws Exception {
        int r = small(n);
        if (way != null)
            way.block();
        return r + small(r);
    }

    static int even(int depth, Way way) throws Exception {
        return depth <= 0 ? leaf(depth, way) : odd(depth - 1, way) + small(depth);
    }

    static int odd(int depth, Way way) throws Exception {
        if (depth <= 0)
            return leaf(depth, way);
        return small(depth)
            + even(depth - 1, way);
    }

    static synchronized void taken() { sum++; }

    static void inside() { synchronized (monitor) { sum++; } }

    static final Way[] ways = {
        Crowd::inside,
        () -> { synchronized (waited) { waited.wait(); } },
        () -> LockSupport.park(waited),
        lock::lock,
        () -> Thread.sleep(3600_000),
        () -> { free.lock(); try { free.newCondition().await(); } finally { free.unlock(); } },
        none::acquire,
        queue::take,
        Crowd::taken,
        () -> new CountDownLatch(1).await(),
    };

    public static void main(String[] args) throws Exception {
        int n = Integer.parseInt(args[0]);
        for (int i = 0; i < 20000; i++)
            sum += even(i % 20, null);
        synchronized (Crowd.class) {
            synchronized (monitor) {
                lock.lock();
                Thread[] all = new Thread[n];
                for (int i = 0; i < n; i++) {
                    int k = i;
                    all[i] = new Thread(() -> {
                        try {
                            sum += even(k % 23, ways[k % ways.length]);
                        } catch (Exception e) {
                            throw new RuntimeException(e);
                        }
                    }, "crowd-" + i);
                    all[i].setDaemon(true);
                    all[i].start();
                }
                for (Thread t : all)
                    while (t.getState() == Thread.State.NEW || t.getState() == Thread.State.RUNNABLE)
                        Thread.sleep(1);
                Thread.sleep(50);
                System.out.println("parked");
                System.in.read();
            }
        }
    }
}
