import java.io.RandomAccessFile;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;

/**
 * Threads FILE N: threads that work, some calls deep. Each counts its rounds in a word of 8 bytes of
 * the file, 64 bytes apart. Prints "busy" when they run. Ends with its standard input.
 */
public class Threads {
    static final int APART = 64;
    static final long[] sink = new long[1024];

    static long leaf(long n, long k) {
        long s = 0;
        for (long i = 0; i < n; i++)
            s += i ^ k;
        return s;
    }

    static long deep(int d, long k) { return (d > 0 ? deep(d - 1, k) : leaf(20000, k)) + 1; }

    static void work(int k, MappedByteBuffer out) {
        for (long n = 1;; n++) {
            sink[16 * (k % 64)] += deep(20, k);
            out.putLong(k * APART, n);
        }
    }

    public static void main(String[] args) throws Exception {
        int n = Integer.parseInt(args[1]);
        try (RandomAccessFile f = new RandomAccessFile(args[0], "rw")) {
            MappedByteBuffer out = f.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, n * APART);
            out.order(ByteOrder.LITTLE_ENDIAN);
            for (int i = 0; i < n; i++) {
                int k = i;
                Thread t = new Thread(() -> work(k, out), "busy-" + i);
                t.setDaemon(true);
                t.start();
            }
            System.out.println("busy");
            System.in.read();
        }
    }
}
