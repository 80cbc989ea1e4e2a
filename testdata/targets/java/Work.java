import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Random;

/** Threads that run, each in another way: those that are named, or all. Then "busy". */
public class Work {
    static volatile long sink;

    static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

    static void recursion() { while (true) sink += fib(20); }

    static void sorting() {
        Random r = new Random(1);
        while (true) {
            Integer[] a = new Integer[5000];
            for (int i = 0; i < a.length; i++)
                a[i] = r.nextInt();
            Arrays.sort(a, Comparator.comparing(x -> -x));
            sink += a[0];
        }
    }

    static void maps() {
        HashMap<String, Integer> m = new HashMap<>();
        for (int i = 0;; i++) {
            m.merge("k" + i % 1000, 1, Integer::sum);
            if (i % 100000 == 0)
                m = new HashMap<>();
        }
    }

    static void copying() {
        byte[] a = new byte[1 << 16], b = new byte[1 << 16];
        while (true) {
            for (int i = 0; i < 1000; i++)
                System.arraycopy(a, i, b, 0, 60000);
            sink += b[5];
        }
    }

    static void objects() {
        ArrayList<Object> l = new ArrayList<>();
        while (true) {
            l.add(new byte[100]);
            if (l.size() > 10000)
                l.clear();
        }
    }

    static void start(String name, String[] chosen, Runnable way) {
        if (chosen.length > 0 && !Arrays.asList(chosen).contains(name))
            return;
        Thread t = new Thread(way, name);
        t.setDaemon(true);
        t.start();
    }

    public static void main(String[] args) throws Exception {
        start("recursion", args, Work::recursion);
        start("sorting", args, Work::sorting);
        start("maps", args, Work::maps);
        start("copying", args, Work::copying);
        start("objects", args, Work::objects);
        System.out.println("busy");
        System.in.read();
    }
}
