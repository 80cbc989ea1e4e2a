import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.RandomAccessFile;

/**
 * Files PATH: prints "ready PID"; for each line of input it opens PATH, reads 25 times 100 bytes, and
 * prints "truth" with its own functions, innermost first, then "done".
 */
public class Files {
    static String reading(RandomAccessFile f) throws Exception {
        byte[] b = new byte[100];
        for (int i = 0; i < 25; i++) {
            f.seek(0);
            f.read(b);
        }
        StringBuilder s = new StringBuilder("truth");
        for (StackTraceElement e : new Throwable().getStackTrace()) {
            s.append(' ').append(e.getClassName()).append('.').append(e.getMethodName());
        }
        return s.toString();
    }

    static String serving(String path) throws Exception {
        try (RandomAccessFile f = new RandomAccessFile(path, "r")) {
            return reading(f);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready " + ProcessHandle.current().pid());
        while (in.readLine() != null) {
            System.out.println(serving(args[0]));
            System.out.println("done");
        }
    }
}
