// Four workers that contend for one lock and each work while holding it: a lock
// convoy. It ends by itself after the given number of seconds (15).
public class Convoy {
    static final Object shared = new Object();
    static volatile long sum;

    static void work(int rounds) {
        long s = 0;
        for (int i = 0; i < rounds * 1000; i++) {
            s += i * 31 % 7;
        }
        sum += s;
    }

    static void handle() {
        synchronized (shared) {
            work(2000);
        }
    }

    public static void main(String[] args) throws Exception {
        for (int i = 0; i < 4; i++) {
            Thread t = new Thread(() -> {
                for (;;) {
                    handle();
                }
            }, "worker-" + i);
            t.setDaemon(true);
            t.start();
        }
        Thread.sleep(1000L * (args.length > 0 ? Integer.parseInt(args[0]) : 15));
    }
}
