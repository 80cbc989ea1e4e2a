import java.io.InputStream;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongUnaryOperator;

/**
 * Classes that come and go: Fresh SECONDS THREADS LOG. Each is Fresh00000000 with another
 * number throughout, by a loader of its own, and runs for some ms; the log says when, in
 * ns of the monotonic clock: a line "NUMBER FROM TO" for each.
 */
public class Fresh {
    static volatile boolean over;
    static volatile long sink;
    static final AtomicInteger next = new AtomicInteger();
    static final ConcurrentLinkedQueue<String> log = new ConcurrentLinkedQueue<>();

    static class Loader extends ClassLoader {
        Class<?> define(byte[] b) { return defineClass(null, b, 0, b.length); }
    }

    static byte[] numbered(byte[] b, String number) {
        byte[] out = b.clone(), to = number.getBytes(StandardCharsets.US_ASCII);
        for (int i = 0; i + 8 <= b.length; i++) {
            int n = 0;
            while (n < 8 && b[i + n] == '0')
                n++;
            if (n == 8)
                System.arraycopy(to, 0, out, i, 8);
        }
        return out;
    }

    static void turns(byte[] template) {
        while (!over) {
            String number = String.format("%08d", next.incrementAndGet());
            long from = System.nanoTime();
            try {
                Class<?> c = new Loader().define(numbered(template, number));
                Constructor<?> make = c.getDeclaredConstructor();
                make.setAccessible(true); // it is in a package of its own: another loader's
                LongUnaryOperator f = (LongUnaryOperator) make.newInstance();
                sink += f.applyAsLong(System.nanoTime() + 1_000_000 + from % 3_000_000);
            } catch (ReflectiveOperationException e) {
                throw new RuntimeException(e);
            }
            log.add(number + " " + from + " " + System.nanoTime() + "\n");
        }
    }

    public static void main(String[] args) throws Exception {
        byte[] template;
        try (InputStream in = Fresh.class.getResourceAsStream("Fresh00000000.class")) {
            template = in.readAllBytes();
        }
        System.out.println("ready " + ProcessHandle.current().pid());
        System.in.read();
        Thread[] all = new Thread[Integer.parseInt(args[1])];
        for (int i = 0; i < all.length; i++) {
            all[i] = new Thread(() -> turns(template), "fresh-" + i);
            all[i].start();
        }
        Thread.sleep(Long.parseLong(args[0]) * 1000);
        over = true;
        for (Thread t : all)
            t.join();
        Files.writeString(Path.of(args[2]), String.join("", log));
        System.out.println("done");
        System.in.read();
    }
}

class Fresh00000000 implements LongUnaryOperator {
    static long step00000000(long s) {
        for (int i = 0; i < 500; i++)
            s += i ^ s;
        return s;
    }

    static long work00000000(long until) {
        long s = until;
        while (System.nanoTime() < until)
            s += step00000000(s);
        return s;
    }

    public long applyAsLong(long until) { return work00000000(until); }
}
