import java.util.concurrent.CyclicBarrier;

/** Two threads that take two monitors in either order, each with a lock of its own first. Then "crossed". */
public class Cross {
    static final Object one = new Object(), two = new Object();
    static final CyclicBarrier both = new CyclicBarrier(2);

    static void take(Object first, Object second) {
        synchronized (first) {
            try {
                both.await();
            } catch (Exception e) {
                throw new RuntimeException(e);
            }
            synchronized (second) {
                System.out.println("never");
            }
        }
    }

    static Thread start(String name, Object first, Object second) {
        Thread t = new Thread(() -> take(first, second), name);
        t.setDaemon(true);
        t.start();
        return t;
    }

    public static void main(String[] args) throws Exception {
        Thread a = start("crossing-a", one, two), b = start("crossing-b", two, one);
        while (a.getState() != Thread.State.BLOCKED || b.getState() != Thread.State.BLOCKED)
            Thread.sleep(1);
        Thread.sleep(20); // from spinning to sleep
        System.out.println("crossed");
        System.in.read();
    }
}
