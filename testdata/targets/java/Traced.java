package shop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Methods whose calls are counted: Traced CALLS. For each line that it reads, three threads and, where Java has them, a
 * virtual one call them, and its number and the counts up to then are printed. At the end of its input it ends.
 */
public class Traced {
    static class Cart {
        static final AtomicLong totals = new AtomicLong(), thrown = new AtomicLong(), deeps = new AtomicLong(), sleeps = new AtomicLong();
        static final AtomicLong longest = new AtomicLong();

        /** Throws at every seventh call. */
        static int total(int n) {
            totals.incrementAndGet();
            if (n % 7 == 0) {
                thrown.incrementAndGet();
                throw new IllegalStateException("seven");
            }
            return n + 1;
        }

        static int deep(int n) {
            deeps.incrementAndGet();
            return n == 0 ? 0 : 1 + deep(n - 1);
        }

        /** Takes 3 ms at least. */
        static void sleepy() throws InterruptedException {
            sleeps.incrementAndGet();
            Thread.sleep(3);
        }
    }

    static void work(int calls) {
        try {
            for (int i = 1; i <= calls; i++) {
                try {
                    Cart.total(i);
                } catch (IllegalStateException e) {
                    Cart.deep(9);
                }
                if (i % 100 == 0) {
                    long begin = System.nanoTime();
                    Cart.sleepy();
                    long took = System.nanoTime() - begin;
                    Cart.longest.accumulateAndGet(took, Math::max);
                }
            }
        } catch (InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    public static void main(String[] args) throws Exception {
        int calls = Integer.parseInt(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (int round = 1; in.readLine() != null; round++) {
            List<Thread> all = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                Thread t = new Thread(() -> work(calls), "worker-" + i);
                t.start();
                all.add(t);
            }
            try {
                all.add((Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, (Runnable) () -> work(calls)));
            } catch (ReflectiveOperationException e) {
                // Java 17
            }
            for (Thread t : all)
                t.join();
            System.out.println("truth " + round + " " + Cart.totals + " " + Cart.thrown + " " + Cart.deeps + " " + Cart.sleeps + " " + Cart.longest);
        }
    }
}
