import java.util.*;
import java.util.concurrent.*;

/** Plants leaks of other shapes than HeapLeaks does. Argument: the kind. */
public class HeapMore {
    static class Link { Link next; byte[] load = new byte[300]; }
    static class Wrap { Object inner; byte[] load = new byte[200]; Wrap(Object o) { inner = o; load[0] = 1; } }
    static class Outer {
        final long[] big = new long[3000];
        class Listener implements Runnable { public void run() { big[0]++; } }
        Runnable listener() { return new Listener(); }
    }
    static final class Registry {
        static final Registry instance = new Registry();
        final Collection<Runnable> hooks = new CopyOnWriteArrayList<>();
        final Queue<Object> queue = new ConcurrentLinkedQueue<>();
        final ConcurrentMap<Integer, Object> sessions = new ConcurrentHashMap<>();
        Link chain;
        Object deep;
    }
    static ExecutorService workers;
    static final ThreadLocal<StringBuilder> builder = ThreadLocal.withInitial(() -> new StringBuilder(60_000));

    public static void main(String[] args) throws Exception {
        Registry r = Registry.instance;
        switch (args[0]) {
            case "chain": for (int i = 0; i < 20_000; i++) { Link l = new Link(); l.next = r.chain; r.chain = l; } break;
            case "deep": for (int i = 0; i < 20_000; i++) r.deep = new Wrap(new Object[] {r.deep}); break;
            case "queue": for (int i = 0; i < 20_000; i++) r.queue.add(new byte[300]); break;
            case "inner": for (int i = 0; i < 300; i++) r.hooks.add(new Outer().listener()); break;
            case "sessions": for (int i = 0; i < 20_000; i++) r.sessions.put(i, new ArrayList<>(List.of(new byte[200], "x" + i))); break;
            case "beside": // a list beside a map that has more than two thirds of what both have
                for (int i = 0; i < 20_000; i++) { Link l = new Link(); l.next = r.chain; r.chain = l; }
                for (int i = 0; i < 60_000; i++) r.sessions.put(i, new ArrayList<>(List.of(new byte[200], "x" + i)));
                break;
            case "one": builder.set(new StringBuilder(6_000_000)); break;
            case "pool":
                workers = Executors.newFixedThreadPool(40);
                CountDownLatch done = new CountDownLatch(40);
                CyclicBarrier all = new CyclicBarrier(40);
                for (int i = 0; i < 40; i++) workers.submit(() -> { builder.get().append("x"); all.await(); done.countDown(); return 0; });
                done.await();
                break;
            case "local": {
                List<byte[]> rows = new ArrayList<>();
                for (int i = 0; i < 5000; i++) rows.add(new byte[1000]);
                System.out.println("READY");
                System.out.flush();
                Thread.sleep(600_000);
                System.out.println(rows.size());
                break;
            }
        }
        System.out.println("READY");
        System.out.flush();
        Thread.sleep(600_000);
    }
}
