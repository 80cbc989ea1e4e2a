import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;

/**
 * Threads that take turns with one lock, and log when each requested, got and released
 * it, in ns of the monotonic clock: Turns KIND THREADS WAITS SECONDS, until there were
 * WAITS waits of 1 ms or longer, or SECONDS have passed. Garbage is allocated all the time, so
 * that the lock's object moves. The format is that of turns.h.
 */
public class Turns {
    interface Way { void run(Runnable inside); }

    static final int most = 1 << 16;
    static volatile boolean over;
    static volatile long sink;
    static volatile Object garbage;
    static final java.util.concurrent.atomic.AtomicInteger waits = new java.util.concurrent.atomic.AtomicInteger();

    static long tid() throws Exception {
        return Long.parseLong(Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName().toString());
    }

    static Way under(Lock l) {
        return inside -> {
            l.lock();
            try {
                inside.run();
            } finally {
                l.unlock();
            }
        };
    }

    static Way way(String kind) {
        switch (kind) {
        case "lock": return under(new ReentrantLock());
        case "fair": return under(new ReentrantLock(true));
        case "write": return under(new ReentrantReadWriteLock().writeLock());
        }
        Object o = new StringBuilder();
        return inside -> {
            synchronized (o) {
                inside.run();
            }
        };
    }

    /** A millisecond and some, half of it at work and half asleep. */
    static void inside(int n) {
        long end = System.nanoTime() + (n % 3 + 1) * 400_000;
        while (System.nanoTime() < end)
            sink++;
        if (n % 2 == 0)
            LockSupport.parkNanos(800_000);
        garbage = new byte[4000];
    }

    public static void main(String[] args) throws Exception {
        Way way = way(args[0]);
        int threads = Integer.parseInt(args[1]), want = Integer.parseInt(args[2]);
        long[][] log = new long[threads][4 * most]; // wanted, had, to be given back, given back
        int[] count = new int[threads];
        long[] tids = new long[threads];
        CountDownLatch begun = new CountDownLatch(threads), go = new CountDownLatch(1);
        Thread[] all = new Thread[threads];
        for (int i = 0; i < threads; i++) {
            int me = i;
            all[i] = new Thread(() -> {
                try {
                    tids[me] = tid();
                    begun.countDown();
                    go.await();
                } catch (Exception e) {
                    throw new RuntimeException(e);
                }
                long[] mine = log[me];
                for (int n = 0; n < most && !over; n++) {
                    int at = 4 * n, k = n + me;
                    mine[at] = System.nanoTime();
                    way.run(() -> {
                        mine[at + 1] = System.nanoTime();
                        inside(k);
                        mine[at + 2] = System.nanoTime();
                    });
                    mine[at + 3] = System.nanoTime();
                    count[me] = n + 1;
                    if (mine[at + 1] - mine[at] >= 1_000_000 && waits.incrementAndGet() >= want)
                        over = true;
                    LockSupport.parkNanos(100_000);
                }
            }, "turn-" + i);
            all[i].start();
        }
        begun.await();
        StringBuilder b = new StringBuilder("{\"lock\":\"0x1\",\"threads\":[");
        for (int i = 0; i < threads; i++)
            b.append(i > 0 ? "," : "").append(tids[i]);
        System.out.println(b.append("]}"));
        System.in.read();
        go.countDown();
        long end = System.nanoTime() + Long.parseLong(args[3]) * 1_000_000_000L;
        while (!over && System.nanoTime() < end) {
            Thread.sleep(5);
            Object[] keep = new Object[64];
            for (int i = 0; i < 256; i++)
                keep[i % 64] = new byte[1 << 12];
            garbage = keep;
        }
        over = true;
        for (Thread t : all)
            t.join();
        StringBuilder w = new StringBuilder("{\"waits\":["), h = new StringBuilder("\"holds\":[");
        for (int i = 0; i < threads; i++)
            for (int n = 0; n < count[i]; n++) {
                long[] x = log[i];
                String comma = i + n > 0 ? "," : "";
                w.append(comma).append("[" + tids[i] + ",1," + x[4 * n] + "," + x[4 * n + 1] + "]");
                h.append(comma).append("[" + tids[i] + ",1," + x[4 * n + 1] + "," + x[4 * n + 2] + "]");
            }
        System.out.println(w.append("],").append(h).append("]}"));
    }
}
