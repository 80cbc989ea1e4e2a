import java.io.*;
import java.util.*;
import org.graalvm.visualvm.lib.jfluid.heap.*;

/** Prints what VisualVM's library finds in a dump: objects with sizes, and with "retained" what they retain. */
public class VisualVM {
    public static void main(String[] args) throws Exception {
        long begin = System.nanoTime();
        Heap heap = HeapFactory.createHeap(new File(args[0]));
        boolean retained = args.length > 1;
        PrintStream out = new PrintStream(new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 20));
        for (Object c : heap.getAllClasses()) {
            JavaClass k = (JavaClass) c;
            out.println("class " + Long.toHexString(k.getJavaClassId()) + " " + k.getInstancesCount() + " " + k.getName());
        }
        if (retained && args[1].equals("biggest")) {
            for (Object o : heap.getBiggestObjectsByRetainedSize(20)) {
                Instance i = (Instance) o;
                out.println("retained " + Long.toHexString(i.getInstanceId()) + " " + i.getSize() + " " + i.getRetainedSize());
            }
        } else if (retained) {
            for (Iterator it = heap.getAllInstancesIterator(); it.hasNext(); ) {
                Instance i = (Instance) it.next();
                out.println("retained " + Long.toHexString(i.getInstanceId()) + " " + i.getSize() + " " + i.getRetainedSize());
            }
        }
        out.println("roots " + heap.getGCRoots().size());
        out.println("took " + (System.nanoTime() - begin) / 1000000);
        out.flush();
    }
}
