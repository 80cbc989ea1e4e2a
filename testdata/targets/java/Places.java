import java.io.FileInputStream;
import java.io.IOException;

/** Places PATH: as python/places.py. */
public class Places {
    static String path;

    static void zero(int n, int depth) throws IOException {
        step(n, depth);
    }

    static void one(int n, int depth) throws IOException {
        step(n, depth);
    }

    static void step(int n, int depth) throws IOException {
        if (depth == 0) {
            new FileInputStream(path).close();
        } else if ((n & 1) == 1) {
            one(n >> 1, depth - 1);
        } else {
            zero(n >> 1, depth - 1);
        }
    }

    static void opening() {
        try {
            for (int n = 0;; n = (n + 1) % 64) {
                step(n, 4 + n % 16);
                Thread.sleep(11);
            }
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    public static void main(String[] args) {
        path = args[0];
        System.out.println("ready " + ProcessHandle.current().pid());
        for (int i = 0; i < 3; i++) {
            new Thread(Places::opening).start();
        }
    }
}
