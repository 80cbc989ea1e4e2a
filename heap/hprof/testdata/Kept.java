import java.util.*;

/** Holds objects of many shapes, says that it does, and waits for its input to end. */
public class Kept {
    static final class Node { Node next; boolean z; byte b; char c; short s; int i; long j; float f; double d; Object ref; }

    static final List<Object> all = new ArrayList<>();
    static final Map<String, Object> map = new HashMap<>();
    static final String SECRET = "the password of Kept is 4711";

    public static void main(String[] args) throws Exception {
        Random random = new Random(1);
        Node last = null;
        for (int n = 0; n < 20_000; n++) {
            Node node = new Node();
            node.next = last;
            node.c = (char) n;
            node.i = n;
            node.j = random.nextLong();
            node.d = n / 3.0;
            node.ref = Integer.valueOf(n);
            last = node;
            if (n % 10 == 0) {
                last = null;
                all.add(node);
                map.put("key " + n, "value " + random.nextInt());
            }
        }
        all.add(new boolean[] {true, false});
        all.add("chars".toCharArray());
        all.add(new short[] {1, -2});
        all.add(new int[1_000]);
        all.add(new long[] {Long.MIN_VALUE});
        all.add(new float[] {1.5f});
        all.add(new double[] {2.5});
        all.add(new byte[3_000_000]);
        all.add(new Object[200_000]);
        System.out.println("ready " + SECRET.length());
        System.in.read();
    }
}
