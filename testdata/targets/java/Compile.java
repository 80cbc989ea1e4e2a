import java.io.OutputStream;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.tools.Diagnostic;
import javax.tools.JavaCompiler;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;

/**
 * javac, again and again on a whole tree: Compile MODULE TREE OUT, where TREE has the
 * sources of a module of the JDK, and with a fourth word, the home of a JDK, against
 * that one's classes. "busy" when the first round begins, a line with the
 * classes that were made after each.
 */
public class Compile {
    public static void main(String[] args) throws Exception {
        List<Path> files;
        try (Stream<Path> all = Files.walk(Path.of(args[1]))) {
            files = all.filter(p -> p.toString().endsWith(".java") && !p.endsWith("module-info.java")).collect(Collectors.toList());
        }
        List<String> options = new ArrayList<>(List.of("-nowarn", "-proc:none", "-d", args[2], "--patch-module", args[0] + "=" + args[1]));
        if (args.length > 3)
            options.addAll(List.of("--system", args[3]));
        Thread t = new Thread(() -> { // one for each compilation is javac's own way; this one is the program's
            JavaCompiler c = compiler();
            while (true) {
                try (StandardJavaFileManager m = c.getStandardFileManager(null, null, null)) {
                    int[] errors = new int[1];
                    c.getTask(new PrintWriter(OutputStream.nullOutputStream()), m, d -> {
                        if (d.getKind() == Diagnostic.Kind.ERROR)
                            errors[0]++;
                    }, options, null, m.getJavaFileObjectsFromPaths(files)).call();
                    System.out.println("round " + errors[0]);
                } catch (Exception e) {
                    System.out.println(e);
                }
            }
        }, "compiles");
        t.setDaemon(true);
        t.start();
        System.out.println("busy");
        System.in.read();
    }

    /** The compiler of this Java, or, where it has none, the one among the classes. */
    static JavaCompiler compiler() {
        JavaCompiler c = ToolProvider.getSystemJavaCompiler();
        try {
            return c != null ? c : (JavaCompiler) Class.forName("com.sun.tools.javac.api.JavacTool").getConstructor().newInstance();
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }
}
