import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Semaphore;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.concurrent.locks.StampedLock;

/**
 * Threads that wait for something of java.util.concurrent each, of which main has
 * what one thread can have, and two circles over such locks. A line "wait NAME KIND
 * CLASS HOLDER" says of each what it waits for ("-": nothing), after objects were
 * moved. Then "ready".
 */
public class Locks {
    static final ReentrantLock plain = new ReentrantLock(), fair = new ReentrantLock(true), other = new ReentrantLock(), third = new ReentrantLock(), bell = new ReentrantLock();
    static final ReentrantReadWriteLock written = new ReentrantReadWriteLock(), read = new ReentrantReadWriteLock();
    static final StampedLock stampedWritten = new StampedLock(), stampedRead = new StampedLock();
    static final Condition rung = bell.newCondition();
    static final Semaphore none = new Semaphore(0);
    static final CountDownLatch never = new CountDownLatch(1);
    static final Object monitor = new Object(), blocker = new StringBuilder("blocker");
    static final CyclicBarrier first = new CyclicBarrier(2), second = new CyclicBarrier(2);
    static final String locks = "java.util.concurrent.locks.";

    interface Way { void block() throws Exception; }

    static void start(String name, String what, Way way) {
        Thread t = new Thread(() -> {
            try {
                way.block();
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
        }, name);
        t.setDaemon(true);
        t.start();
        System.out.println("wait " + name + " " + what);
    }

    static void both(ReentrantLock a, CyclicBarrier met, Way then) throws Exception {
        a.lock();
        met.await();
        then.block();
    }

    public static void main(String[] args) throws Exception {
        plain.lock();
        fair.lock();
        written.writeLock().lock();
        read.readLock().lock();
        stampedWritten.writeLock();
        stampedRead.readLock();
        stampedRead.readLock();
        start("one-plain", "synchronizer " + locks + "ReentrantLock$NonfairSync main", plain::lock);
        start("one-fair", "synchronizer " + locks + "ReentrantLock$FairSync main", fair::lock);
        start("one-timed", "synchronizer " + locks + "ReentrantLock$NonfairSync main", () -> plain.tryLock(1, java.util.concurrent.TimeUnit.HOURS));
        start("one-reader", "synchronizer " + locks + "ReentrantReadWriteLock$NonfairSync main", written.readLock()::lock);
        start("one-writer", "synchronizer " + locks + "ReentrantReadWriteLock$NonfairSync 1", read.writeLock()::lock);
        start("stamped-reader", "synchronizer " + locks + "StampedLock writer", stampedWritten::readLock);
        start("stamped-writer", "synchronizer " + locks + "StampedLock 2", stampedRead::writeLock);
        start("one-condition", "condition " + locks + "AbstractQueuedSynchronizer$ConditionObject -", () -> { bell.lock(); rung.await(); });
        start("one-semaphore", "semaphore java.util.concurrent.Semaphore$NonfairSync -", none::acquire);
        start("one-latch", "park java.util.concurrent.CountDownLatch$Sync -", never::await);
        start("one-future", "park java.util.concurrent.CompletableFuture$Signaller -", () -> new CompletableFuture<Object>().get());
        start("one-blocker", "park java.lang.StringBuilder -", () -> LockSupport.park(blocker));
        start("one-park", "park - -", () -> LockSupport.park());
        start("one-wait", "condition java.lang.Object -", () -> { synchronized (monitor) { monitor.wait(); } });
        start("one-sleep", "sleep - -", () -> Thread.sleep(3600_000));
        start("cross-a", "synchronizer " + locks + "ReentrantLock$NonfairSync cross-b", () -> both(other, first, third::lock));
        start("cross-b", "synchronizer " + locks + "ReentrantLock$NonfairSync cross-a", () -> both(third, first, other::lock));
        ReentrantLock mine = new ReentrantLock();
        Object own = new Object();
        start("mixed-a", "monitor java.lang.Object mixed-b", () -> both(mine, second, () -> { synchronized (own) { } }));
        start("mixed-b", "synchronizer " + locks + "ReentrantLock$NonfairSync mixed-a", () -> { synchronized (own) { second.await(); mine.lock(); } });
        for (Thread t : Thread.getAllStackTraces().keySet())
            if (t.getName().contains("-") && t.isDaemon() && t.getName().matches("(one|stamped|cross|mixed)-.*"))
                while (t.getState() == Thread.State.NEW || t.getState() == Thread.State.RUNNABLE)
                    Thread.sleep(1);
        while (!plain.hasQueuedThreads() || !third.hasQueuedThreads() || !other.hasQueuedThreads() || !mine.hasQueuedThreads())
            Thread.sleep(1);
        System.gc();
        System.gc();
        Thread.sleep(50); // the monitor: from spinning to sleep
        System.out.println("ready");
        System.in.read();
    }
}
