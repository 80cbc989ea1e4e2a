import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Array;

/**
 * Upcall sorts with the C library's qsort and a comparator in Java, until its input ends (Foreign Function
 * and Memory API, Java 22 and later). It uses the API by reflection: the tests compile for Java 17.
 */
class Upcall {
    static volatile long sink;

    static final int WORDS = 256;

    /** The comparator gets addresses: their order is random enough to keep qsort busy. */
    static int order(long a, long b) {
        long n = a ^ b;
        for (int i = 0; i < 200; i++)
            n = n * 6364136223846793005L + 1442695040888963407L;
        sink = n;
        return Long.compare(a, b);
    }

    static Object call(Object on, String type, String name, Object... args) throws Exception {
        for (var m : Class.forName("java.lang.foreign." + type).getMethods()) {
            if (!m.getName().equals(name) || m.getParameterCount() != args.length)
                continue;
            boolean fits = true;
            for (int i = 0; i < args.length; i++)
                fits &= m.getParameterTypes()[i].isInstance(args[i])
                        || args[i] instanceof Long && m.getParameterTypes()[i] == long.class;
            if (fits)
                return m.invoke(on, args);
        }
        throw new NoSuchMethodException(type + "." + name);
    }

    static Object layout(String name) throws Exception {
        return Class.forName("java.lang.foreign.ValueLayout").getField(name).get(null);
    }

    static Object layouts(Object... of) throws Exception {
        Object all = Array.newInstance(Class.forName("java.lang.foreign.MemoryLayout"), of.length);
        for (int i = 0; i < of.length; i++)
            Array.set(all, i, of[i]);
        return all;
    }

    /** A line ends the program, and so does the end of its input: its test may have been killed. */
    static void read() {
        try {
            System.in.read();
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    static void sort(MethodHandle qsort, Object words, Object comparator) throws Throwable {
        qsort.invokeWithArguments(words, (long) WORDS, 8L, comparator);
    }

    public static void main(String[] args) throws Throwable {
        Object options = Array.newInstance(Class.forName("java.lang.foreign.Linker$Option"), 0);
        Object linker = call(null, "Linker", "nativeLinker"), arena = call(null, "Arena", "global");
        Object word = layout("JAVA_LONG"), address = layout("ADDRESS");
        Object library = call(linker, "Linker", "defaultLookup");
        Object symbol = ((java.util.Optional<?>) call(library, "SymbolLookup", "find", "qsort")).get();
        Object signature = call(null, "FunctionDescriptor", "ofVoid", layouts(address, word, word, address));
        MethodHandle qsort = (MethodHandle) call(linker, "Linker", "downcallHandle", symbol, signature, options);
        MethodHandle order = MethodHandles.lookup().findStatic(Upcall.class, "order",
                MethodType.methodType(int.class, long.class, long.class));
        signature = call(null, "FunctionDescriptor", "of", layout("JAVA_INT"), layouts(word, word));
        Object comparator = call(linker, "Linker", "upcallStub", order, signature, arena, options);
        Object words = call(arena, "Arena", "allocate", 8L * WORDS, 8L);
        for (long end = System.nanoTime() + 500_000_000L; System.nanoTime() < end; )
            sort(qsort, words, comparator);
        var input = new Thread(Upcall::read);
        input.start();
        System.out.println("ready");
        while (input.isAlive())
            sort(qsort, words, comparator);
    }
}
