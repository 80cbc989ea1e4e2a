import java.io.RandomAccessFile;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Work of ten kinds, each in a function of its own, over and over. Its argument is a file
 * into which it writes how many rounds it has made, as 8 bytes.
 */
public class Load {
    static final Pattern ADDRESS = Pattern.compile("(\\w+)@(\\w+)");
    static volatile long sink;

    record Point(int x, int y) {
        long dot(Point o) { return (long) x * o.x + (long) y * o.y; }
    }

    static int down(int n) { return n == 0 ? 0 : down(n - 1) + 1; }

    static long recursion() {
        long s = 0;
        for (int i = 0; i < 400; i++)
            s += down(120);
        return s;
    }

    static String encoding(Map<String, Integer> data) {
        StringBuilder b = new StringBuilder("{");
        for (Map.Entry<String, Integer> e : data.entrySet())
            b.append('"').append(e.getKey()).append("\":").append(e.getValue()).append(',');
        return b.append('}').toString();
    }

    static Map<String, Integer> decoding(String text) {
        Map<String, Integer> data = new HashMap<>();
        for (String pair : text.substring(1, text.length() - 2).split(",")) {
            int at = pair.indexOf(':');
            data.put(pair.substring(1, at - 1), Integer.parseInt(pair.substring(at + 1)));
        }
        return data;
    }

    static int matching(String text) {
        int n = 0;
        Matcher m = ADDRESS.matcher(text);
        while (m.find())
            n++;
        return n;
    }

    static List<Integer> sorting(List<Integer> items) {
        List<Integer> l = new ArrayList<>(items);
        Collections.sort(l, (a, b) -> b - a);
        return l;
    }

    static String joining(List<Integer> items) {
        StringBuilder b = new StringBuilder();
        for (int x : items)
            b.append(x).append(',');
        return b.toString();
    }

    static int counting(String text) {
        Map<Character, Integer> n = new HashMap<>();
        for (char c : text.toCharArray())
            n.merge(c, 1, Integer::sum);
        return n.size();
    }

    static long objects() {
        long s = 0;
        Point last = new Point(0, 1);
        for (int i = 1; i < 20000; i++) {
            Point p = new Point(i, i + 1);
            s += p.dot(last);
            last = p;
        }
        return s;
    }

    static int summing() {
        int n = 0;
        for (int i = 0; i < 200000; i++)
            n += i % 7;
        return n;
    }

    static byte[] copying(byte[] from) {
        byte[] to = null;
        for (int i = 0; i < 4; i++)
            to = Arrays.copyOf(from, from.length);
        return to;
    }

    public static void main(String[] args) throws Exception {
        Map<String, Integer> data = new HashMap<>();
        List<Integer> items = new ArrayList<>();
        for (int i = 0; i < 400; i++)
            data.put("k" + i, i);
        for (int i = 0; i < 3000; i++)
            items.add(i * 7919 % 3001);
        String text = "name@host some words ".repeat(200);
        byte[] bytes = new byte[1 << 18];
        try (RandomAccessFile f = new RandomAccessFile(args[0], "rw")) {
            MappedByteBuffer out = f.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 8);
            out.order(ByteOrder.LITTLE_ENDIAN);
            for (long n = 1;; n++) {
                sink += recursion() + decoding(encoding(data)).size() + matching(text) + sorting(items).get(0) + joining(items).length()
                    + counting(text) + objects() + summing() + copying(bytes).length;
                out.putLong(0, n);
            }
        }
    }
}
