import java.io.*;
import java.lang.reflect.*;
import java.net.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.locks.LockSupport;

/** Plants one leak of each kind and waits to be dumped. Arguments: kinds, comma separated. */
public class HeapLeaks {
    static final Map<String, byte[]> sessionCache = new HashMap<>();
    static final List<Object> listeners = new ArrayList<>();
    static final List<ClassLoader> plugins = new ArrayList<>();
    static final List<Thread> pool = new ArrayList<>();
    static final ThreadLocal<byte[]> requestBuffer = new ThreadLocal<>();
    static final List<String> names = new ArrayList<>();
    static final List<Map<String, String>> halfEmpty = new ArrayList<>();
    static final List<byte[]> zeros = new ArrayList<>();
    static final List<Object[]> nulls = new ArrayList<>();
    static final List<Thread> parked = new ArrayList<>();
    static final List<Object> heads = new ArrayList<>();
    static byte[] held;
    static long[] decoys = {};

    static class Listener {
        final long[] state = new long[120];
    }

    /** Loads its own copy of Plugin. */
    static class PluginLoader extends ClassLoader {
        PluginLoader() { super(HeapLeaks.class.getClassLoader()); }
        @Override protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.equals("HeapLeaks$Plugin")) return super.loadClass(name, resolve);
            synchronized (this) {
                Class<?> c = findLoadedClass(name);
                if (c != null) return c;
                try (InputStream in = getParent().getResourceAsStream("HeapLeaks$Plugin.class")) {
                    byte[] b = in.readAllBytes();
                    return defineClass(name, b, 0, b.length);
                } catch (IOException e) { throw new ClassNotFoundException(name, e); }
            }
        }
    }

    public static class Plugin {
        static final byte[] config = new byte[100_000];
        static { Arrays.fill(config, (byte) 7); config[1] = 1; }
    }

    static void hold() {
        byte[] local = new byte[40_000];
        local[3] = 3;
        while (true) { LockSupport.park(); if (local[3] == 4) return; }
    }

    static class Dropped { final int[] content = new int[20]; }
    static class Weakly extends Dropped { }
    static class Softly extends Dropped { }
    static class Phantomly extends Dropped { }
    static class Finalized extends Dropped { @Override protected void finalize() { held = null; } } // an empty one would not count
    static final List<Object> references = new ArrayList<>();
    static final java.lang.ref.ReferenceQueue<Object> queue = new java.lang.ref.ReferenceQueue<>();

    /** Objects that are garbage, or that only a reference holds; no collection has met them. */
    static void references() {
        Dropped[] dropped = new Dropped[700];
        for (int i = 0; i < dropped.length; i++) dropped[i] = new Dropped();
        for (int i = 0; i < 500; i++) {
            references.add(new java.lang.ref.WeakReference<>(new Weakly()));
            references.add(new java.lang.ref.SoftReference<>(new Softly()));
            references.add(new java.lang.ref.PhantomReference<>(new Phantomly(), queue));
            new Finalized();
        }
    }

    public static void main(String[] args) throws Exception {
        Set<String> kinds = new HashSet<>(Arrays.asList(args[0].split(",")));
        Random random = new Random(1);
        if (kinds.contains("map"))
            for (int i = 0; i < 2000; i++) { byte[] b = new byte[5000]; random.nextBytes(b); sessionCache.put("session-" + i, b); }
        if (kinds.contains("list"))
            for (int i = 0; i < 8000; i++) { Listener l = new Listener(); l.state[0] = i; listeners.add(l); }
        if (kinds.contains("loader"))
            for (int i = 0; i < 20; i++) { ClassLoader l = new PluginLoader(); Class.forName("HeapLeaks$Plugin", true, l); plugins.add(l); }
        if (kinds.contains("threadlocal")) {
            CountDownLatch set = new CountDownLatch(64);
            for (int i = 0; i < 64; i++) {
                Thread t = new Thread(() -> {
                    byte[] b = new byte[70_000]; b[9] = 9; requestBuffer.set(b); set.countDown();
                    while (true) LockSupport.park();
                }, "worker-" + i);
                t.setDaemon(true); t.start(); pool.add(t);
            }
            set.await();
        }
        if (kinds.contains("duplicates"))
            for (int i = 0; i < 20000; i++) names.add(new String("the same customer name in every order " + i % 10));
        if (kinds.contains("fill"))
            for (int i = 0; i < 3000; i++) { Map<String, String> m = new HashMap<>(256); m.put("k", "v"); halfEmpty.add(m); }
        if (kinds.contains("zeros"))
            for (int i = 0; i < 300; i++) zeros.add(new byte[20_000]);
        if (kinds.contains("nulls")) { Object[] a = new Object[600_000]; a[1] = "x"; nulls.add(a); }
        if (kinds.contains("heads")) // the smallest objects
            for (int i = 0; i < 200_000; i++) heads.add(new Object());
        if (kinds.contains("decoys")) { // what seem to be millions of objects, within an array
            Field field = Class.forName("sun.misc.Unsafe").getDeclaredField("theUnsafe");
            field.setAccessible(true);
            Object unsafe = field.get(null), o = new Object();
            Method word = unsafe.getClass().getMethod("getLong", Object.class, long.class);
            decoys = new long[6 << 20];
            long[] head = {(long) word.invoke(unsafe, o, 0L), (long) word.invoke(unsafe, o, 8L)};
            for (int i = 0; i < decoys.length; i++) decoys[i] = head[i % 2];
        }
        if (kinds.contains("virtual")) {
            // By reflection: the class is compiled for Java 17.
            Method start = Thread.class.getMethod("startVirtualThread", Runnable.class);
            for (int i = 0; i < 500; i++) parked.add((Thread) start.invoke(null, (Runnable) HeapLeaks::hold));
            for (Thread t : parked) while (t.getState() != Thread.State.WAITING) Thread.sleep(1);
        }
        if (kinds.contains("big")) { // 2.4 million objects
            Map<String, Object> cache = new HashMap<>();
            for (int i = 0; i < 130_000; i++) {
                Map<String, Object> m = new HashMap<>();
                for (int k = 0; k < 3; k++) m.put("key-" + k + "-" + random.nextInt(1000), "value " + random.nextInt());
                cache.put("entry" + i, m);
            }
            nulls.add(new Object[] {cache});
        }
        if (kinds.contains("small")) { // 5 million small objects
            Map<Integer, String> entries = new HashMap<>();
            for (int i = 0; i < 1_250_000; i++) entries.put(i + 1000, "v" + i);
            nulls.add(new Object[] {entries});
        }
        if (kinds.contains("churn")) // threads that allocate without end, in all sizes
            for (int i = 0; i < 3; i++) {
                Thread t = new Thread(() -> {
                    Object[] kept = new Object[4096];
                    for (int n = 0; ; n++) {
                        kept[n & 4095] = n % 997 == 0 ? new byte[n % 300_000] : new Object[] {n, "x" + n, new long[n & 31], kept[n * 7 & 4095]};
                        if ((n & 0xfff) == 0) Arrays.fill(kept, null);
                    }
                }, "churn-" + i);
                t.setDaemon(true); t.start();
            }
        if (kinds.contains("unload")) { // classes that are loaded, used and unloaded without end
            Thread t = new Thread(() -> {
                try {
                    for (int n = 0; ; n++) {
                        for (int i = 0; i < 20; i++) Class.forName("HeapLeaks$Plugin", true, new PluginLoader()).getDeclaredConstructor().newInstance();
                        if (n % 10 == 0) System.gc();
                    }
                } catch (ReflectiveOperationException e) { throw new RuntimeException(e); }
            }, "unload");
            t.setDaemon(true); t.start();
        }
        if (kinds.contains("array")) { held = new byte[33_554_432]; random.nextBytes(held); }
        if (kinds.contains("references")) references();
        if (kinds.contains("grow")) {
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
            System.out.println("READY");
            while (in.readLine() != null) {
                for (int i = 0; i < 3000; i++) listeners.add(new Listener());
                System.out.println("GROWN");
            }
        } else System.out.println("READY");
        System.out.flush();
        Thread.sleep(600_000);
    }
}
