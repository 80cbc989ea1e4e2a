import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * Virtual threads (Java 21 and later): "spins" runs with its callers left in the heap,
 * "sleeps" is on no thread; each has a lock that a thread wants. Then "ready".
 */
public class Virtual {
    static final ReentrantLock one = new ReentrantLock(), two = new ReentrantLock();
    static final CountDownLatch have = new CountDownLatch(2);
    static volatile long sum;

    static void start(String name, Runnable r) throws Exception {
        Object b = Thread.class.getMethod("ofVirtual").invoke(null);
        Class<?> builder = Class.forName("java.lang.Thread$Builder");
        builder.getMethod("name", String.class).invoke(b, name);
        builder.getMethod("start", Runnable.class).invoke(b, r);
    }

    static void deep(int n, Runnable r) {
        if (n > 0)
            deep(n - 1, r);
        else
            r.run();
        sum++;
    }

    static void spin() {
        LockSupport.parkNanos(20_000_000); // all frames go to the heap, few come back
        for (;;)
            sum++;
    }

    static void want(String name, ReentrantLock lock) {
        Thread t = new Thread(lock::lock, name);
        t.setDaemon(true);
        t.start();
    }

    static void take(ReentrantLock lock) {
        lock.lock();
        have.countDown();
    }

    public static void main(String[] args) throws Exception {
        start("spins", () -> deep(20, () -> { take(one); spin(); }));
        start("sleeps", () -> deep(5, () -> { take(two); LockSupport.parkNanos(3600_000_000_000L); }));
        have.await();
        want("wants-spins", one);
        want("wants-sleeps", two);
        while (!one.hasQueuedThreads() || !two.hasQueuedThreads())
            Thread.sleep(1);
        long was = sum;
        while (sum == was)
            Thread.sleep(1);
        Thread.sleep(100);
        System.out.println("ready");
        System.in.read();
    }
}
