import java.io.*;
import java.lang.reflect.Method;
import java.net.ServerSocket;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.locks.*;

/**
 * HeapThreads parks threads in different ways and prints READY once all of them stand still: the stacks of a
 * dump of it are known. Arguments: "virtual" adds virtual threads (21 and later).
 */
public class HeapThreads {
    static final List<Thread> threads = new ArrayList<>();
    static final ReentrantLock taken = new ReentrantLock();
    static volatile long sink;

    /** The content of one thread's frames: found as what they hold. */
    static final class Local { final byte[] content = new byte[5000]; final String of; Local(String of) { this.of = of; } }

    interface Task { void run() throws Exception; }

    static void thread(String name, Task task) {
        Thread t = new Thread(() -> {
            Local local = new Local(name);
            try { task.run(); } catch (Exception e) { throw new RuntimeException(e); }
            sink += local.content.length;
        }, name);
        t.setDaemon(true);
        threads.add(t);
        t.start();
    }

    static void park() { while (true) LockSupport.park(); }

    /** Compiled by the time that it is called with depth 0. */
    static long deep(int depth, boolean stop, Local[] locals) {
        Local mine = locals[depth % locals.length];
        if (depth == 0) {
            if (stop) park();
            return mine.content[1];
        }
        return twice(depth, stop, locals) + mine.content[depth % 3];
    }
    static long twice(int depth, boolean stop, Local[] locals) { return deep(depth - 1, stop, locals) + 1; }

    static class Initialized { static int value = 1; static { HeapThreads.park(); } }

    static class Pinned { static int value = 1; static { HeapThreads.park(); } }

    static class Box<T extends Comparable<T>> implements Comparator<T> {
        public int compare(T a, T b) { park(); return a.compareTo(b); }
    }

    public static void main(String[] args) throws Exception {
        Local[] locals = new Local[7];
        for (int i = 0; i < locals.length; i++) locals[i] = new Local("deep " + i);
        for (int i = 0; i < 20_000; i++) sink += deep(20, false, locals);
        thread("parked", HeapThreads::park);
        thread("deep", () -> sink += deep(40, true, locals));
        thread("deeper", () -> sink += deep(3000, true, locals));
        thread("sleeping", () -> Thread.sleep(3_000_000));
        Object monitor = new Object();
        thread("waiting", () -> { synchronized (monitor) { monitor.wait(); } });
        taken.lock();
        thread("locking", taken::lock);
        Object held = new Object();
        CountDownLatch inside = new CountDownLatch(1);
        thread("holding", () -> { synchronized (held) { inside.countDown(); park(); } });
        inside.await();
        thread("entering", () -> { synchronized (held) { sink++; } });
        ServerSocket socket = new ServerSocket(0);
        thread("accepting", () -> socket.accept());
        PipedInputStream pipe = new PipedInputStream(new PipedOutputStream());
        thread("reading", () -> pipe.read());
        thread("initializing", () -> sink += Initialized.value);
        Method method = HeapThreads.class.getDeclaredMethod("park");
        thread("reflecting", () -> method.invoke(null));
        thread("sorting", () -> Arrays.sort(new String[] {"b", "a", "c"}, new Box<String>()));
        thread("streaming", () -> List.of(1, 2, 3).stream().map(x -> { park(); return x; }).forEach(x -> sink += x));
        ExecutorService pool = Executors.newFixedThreadPool(4, r -> { Thread t = new Thread(r, "pool"); t.setDaemon(true); threads.add(t); return t; });
        for (int i = 0; i < 4; i++) pool.submit(() -> 1).get();
        BlockingQueue<String> queue = new SynchronousQueue<>();
        thread("taking", () -> queue.take());
        if (args.length > 0 && args[0].contains("virtual")) {
            Method start = Thread.class.getMethod("startVirtualThread", Runnable.class);
            for (int i = 0; i < 50; i++) {
                int depth = i;
                threads.add((Thread) start.invoke(null, (Runnable) () -> {
                    Local local = new Local("virtual " + depth);
                    sink += deep(depth, true, locals) + local.content.length;
                }));
            }
            // One that cannot leave its carrier.
            threads.add((Thread) start.invoke(null, (Runnable) () -> sink += Pinned.value));
        }
        for (Thread t : threads)
            while (t.getState() != Thread.State.WAITING && t.getState() != Thread.State.TIMED_WAITING && t.getState() != Thread.State.BLOCKED
                    && !(t.getName().equals("accepting") && t.getStackTrace().length > 3))
                Thread.sleep(1);
        System.out.println("READY");
        System.out.flush();
        Thread.sleep(600_000);
    }
}
