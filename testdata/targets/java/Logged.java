package shop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;

/**
 * Methods whose calls are logged: Logged ROUNDS. For each line that it reads, two threads and, where Java has them, a
 * virtual one call the methods, and each call is printed: call THREAD METHOD BEFORE FIRST LAST AFTER, times in ns of
 * System.nanoTime, of the caller before and after it, and of the method itself. At the end of its input it ends.
 */
public class Logged {
    /** The calls of one thread. */
    static class Log {
        final StringBuilder lines = new StringBuilder();
        long first, last; // of the method that has ended last
        long work;

        void call(String method, long before) {
            long after = System.nanoTime();
            lines.append("call ").append(Thread.currentThread().isDaemon() ? "virtual" : Thread.currentThread().getName()).append(' ').append(method)
                .append(' ').append(before).append(' ').append(first).append(' ').append(last).append(' ').append(after).append('\n');
        }

        void shortly() {
            long begin = System.nanoTime();
            work++;
            last = System.nanoTime();
            first = begin;
        }

        void computes() {
            long begin = System.nanoTime();
            while (System.nanoTime() - begin < 12_000_000)
                add();
            last = System.nanoTime();
            first = begin;
        }

        void add() {
            for (int i = 0; i < 1000; i++)
                work = work * 31 + i;
        }

        void sleeps() throws InterruptedException {
            long begin = System.nanoTime();
            Thread.sleep(15);
            last = System.nanoTime();
            first = begin;
        }

        void fails() {
            long begin = System.nanoTime();
            work++;
            last = System.nanoTime();
            first = begin;
            throw new IllegalStateException("failed");
        }

        /** Throws, and catches that itself. */
        void catches() {
            long begin = System.nanoTime();
            try {
                if (work != 0)
                    throw new IllegalStateException("caught");
            } catch (IllegalStateException e) {
                add();
            }
            last = System.nanoTime();
            first = begin;
        }

        /** Ends by the exception of another method. */
        void passes() {
            if (work == 0)
                work++;
            fails();
        }

        void deep(int n) {
            long begin = System.nanoTime();
            if (n > 0) {
                long before = System.nanoTime();
                deep(n - 1);
                call("deep", before);
            } else {
                add();
            }
            last = System.nanoTime();
            first = begin;
        }

        void round() throws InterruptedException {
            long before = System.nanoTime();
            shortly();
            call("shortly", before);
            before = System.nanoTime();
            computes();
            call("computes", before);
            before = System.nanoTime();
            try {
                fails();
            } catch (IllegalStateException e) {
                call("fails", before);
            }
            before = System.nanoTime();
            catches();
            call("catches", before);
            try {
                before = System.nanoTime();
                passes();
            } catch (IllegalStateException e) {
                call("fails", before);
            }
            before = System.nanoTime();
            deep(5);
            call("deep", before);
            before = System.nanoTime();
            sleeps();
            call("sleeps", before);
        }
    }

    static void run(Log log, int rounds) {
        try {
            for (int i = 0; i < rounds; i++)
                log.round();
        } catch (InterruptedException e) {
            throw new RuntimeException(e);
        }
    }

    public static void main(String[] args) throws Exception {
        int rounds = Integer.parseInt(args[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        while (in.readLine() != null) {
            List<Thread> all = new ArrayList<>();
            List<Log> logs = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                Log log = new Log();
                logs.add(log);
                Runnable r = () -> run(log, rounds);
                try {
                    if (i == 2) {
                        all.add((Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, r));
                        continue;
                    }
                } catch (ReflectiveOperationException e) { // Java 17
                    continue;
                }
                Thread t = new Thread(r, "worker-" + i);
                t.start();
                all.add(t);
            }
            for (Thread t : all)
                t.join();
            for (Log log : logs)
                System.out.print(log.lines);
            System.out.println("done");
        }
    }
}
