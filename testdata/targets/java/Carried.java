import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;

/**
 * Virtual threads (Java 21 and later) that run in turn: Carried SECONDS LOG. Each notes
 * the thread that carried it, from when to when it surely did, in ns of the monotonic
 * clock, and its name. While they do, garbage is made, so that they move.
 */
public class Carried {
    static volatile boolean over;
    static volatile long sink;
    static volatile Object garbage;
    static final ConcurrentLinkedQueue<String> log = new ConcurrentLinkedQueue<>();

    static void turns(String name) throws Exception {
        while (!over) {
            long from = System.nanoTime();
            String tid = Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName().toString();
            long begun = System.nanoTime();
            while (System.nanoTime() < begun + 3_000_000) {
                sink++;
                garbage = new byte[256];
            }
            String again = Files.readSymbolicLink(Path.of("/proc/thread-self")).getFileName().toString();
            if (tid.equals(again))
                log.add(tid + " " + begun + " " + System.nanoTime() + " " + name + " run\n");
            Thread.sleep(1 + from % 3);
        }
    }

    static Thread start(String name) throws Exception {
        Object b = Thread.class.getMethod("ofVirtual").invoke(null);
        Class<?> builder = Class.forName("java.lang.Thread$Builder");
        builder.getMethod("name", String.class).invoke(b, name);
        return (Thread) builder.getMethod("start", Runnable.class).invoke(b, (Runnable) () -> {
            try {
                turns(name);
            } catch (Exception e) {
                System.err.println(e);
            }
        });
    }

    public static void main(String[] args) throws Exception {
        System.out.println("ready " + ProcessHandle.current().pid());
        System.in.read();
        Thread[] all = new Thread[24];
        for (int i = 0; i < all.length; i++)
            all[i] = start("named-" + i);
        Thread.sleep(Long.parseLong(args[0]) * 1000);
        over = true;
        for (Thread t : all)
            t.join();
        Files.writeString(Path.of(args[1]), String.join("", log));
        System.out.println("done");
        System.in.read();
    }
}
