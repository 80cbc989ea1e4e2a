import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;

/** Executors and queues of each kind whose threads have nothing to do. */
public class Idle {
    public static void main(String[] args) throws Exception {
        ExecutorService fixed = Executors.newFixedThreadPool(3), cached = Executors.newCachedThreadPool();
        for (int i = 0; i < 3; i++) {
            fixed.submit(() -> {});
        }
        cached.submit(() -> {});
        ScheduledExecutorService timed = Executors.newScheduledThreadPool(1);
        timed.schedule(() -> {}, 1, TimeUnit.HOURS);
        ForkJoinPool.commonPool().submit(() -> {});
        LinkedBlockingQueue<Integer> queue = new LinkedBlockingQueue<>();
        SynchronousQueue<Integer> handOver = new SynchronousQueue<>();
        worker(() -> queue.take());
        worker(() -> handOver.take());
        while (true) {
            Thread.sleep(10);
        }
    }

    interface Work {
        Integer take() throws InterruptedException;
    }

    static void worker(Work w) {
        Thread t = new Thread(() -> {
            try {
                for (int n = 0; ; n += w.take()) {
                }
            } catch (InterruptedException e) {
                return;
            }
        }, "own worker");
        t.setDaemon(true);
        t.start();
    }
}
