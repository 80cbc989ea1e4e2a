import java.io.File;
import org.graalvm.visualvm.lib.jfluid.heap.*;

/** Stacks FILE prints the threads of a heap dump that VisualVM's library finds, and how many locals have a frame. */
class Stacks {
    public static void main(String[] args) throws Exception {
        Heap heap = HeapFactory.createHeap(new File(args[0]));
        int placed = 0;
        for (Object o : heap.getGCRoots()) {
            if (o instanceof ThreadObjectGCRoot) {
                StackTraceElement[] calls = ((ThreadObjectGCRoot) o).getStackTrace();
                System.out.println("thread " + (calls == null ? 0 : calls.length) + (calls == null || calls.length == 0 ? "" : " " + calls[calls.length - 1]));
            } else if (o instanceof JavaFrameGCRoot) {
                JavaFrameGCRoot local = (JavaFrameGCRoot) o;
                if (local.getFrameNumber() >= 0 && local.getThreadGCRoot() != null)
                    placed++;
            }
        }
        System.out.println("placed " + placed);
    }
}
