/**
 * A deadlock of two threads that initialize classes, one of a class and a monitor, and a thread that
 * waits for one of the classes.
 */
public class Initializers {
    static final java.util.concurrent.CountDownLatch both = new java.util.concurrent.CountDownLatch(2), mixed = new java.util.concurrent.CountDownLatch(2);
    static final Object monitor = new Object();

    static void meet(java.util.concurrent.CountDownLatch l) {
        l.countDown();
        try {
            l.await();
        } catch (InterruptedException e) {
            throw new Error(e);
        }
    }

    static class A {
        static int x;
        static { meet(both); x = B.y + 1; }
    }

    static class B {
        static int y;
        static { meet(both); y = A.x + 1; }
    }

    static class C {
        static int z;
        static { meet(mixed); synchronized (monitor) { z = 1; } }
    }

    static void holds() {
        synchronized (monitor) {
            meet(mixed);
            C.z++;
        }
    }

    public static void main(String[] args) throws Exception {
        new Thread(() -> A.x++, "init-A").start();
        new Thread(() -> B.y++, "init-B").start();
        new Thread(() -> C.z++, "init-C").start();
        new Thread(Initializers::holds, "holds-monitor").start();
        both.await();
        new Thread(() -> A.x++, "waits-A").start();
        System.out.println("ready " + ProcessHandle.current().pid());
        Thread.currentThread().join();
    }
}
