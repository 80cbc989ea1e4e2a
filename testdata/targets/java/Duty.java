import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

/**
 * Duty BURN_US REST_US SECONDS: works and rests in turns; the last line is its own CPU account:
 * truth burn NS rest NS write 0 total NS elapsed NS.
 */
class Duty {
    static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    static long burned, rested;
    static volatile long sink;

    static long cpu() {
        return THREADS.getCurrentThreadCpuTime();
    }

    static void burn(long ns) {
        long begin = cpu(), now;
        while ((now = cpu()) < begin + ns)
            for (int i = 0; i < 5000; i++)
                sink += i;
        burned += now - begin;
    }

    static void rest(long ns) throws InterruptedException {
        long begin = cpu();
        Thread.sleep(ns / 1_000_000, (int) (ns % 1_000_000));
        rested += cpu() - begin;
    }

    public static void main(String[] args) throws InterruptedException {
        long burnNs = Long.parseLong(args[0]) * 1000, restNs = Long.parseLong(args[1]) * 1000;
        for (long end = System.nanoTime() + 1_000_000_000L; System.nanoTime() < end; burn(1_000_000))
            ; // until the compilers are done
        burned = 0;
        System.out.println("ready");
        long first = System.nanoTime(), cpu = cpu(), end = first + (long) (Double.parseDouble(args[2]) * 1e9);
        while (System.nanoTime() < end) {
            burn(burnNs);
            rest(restNs);
        }
        System.out.println("truth burn " + burned + " rest " + rested + " write 0 total " + (cpu() - cpu) + " elapsed " + (System.nanoTime() - first));
    }
}
