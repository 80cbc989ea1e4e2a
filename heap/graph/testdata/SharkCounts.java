import java.io.File;
import java.util.EnumSet;
import shark.*;

/** Prints how many objects of each kind Shark has of each dump. */
public class SharkCounts {
    public static void main(String[] args) {
        for (String path : args) {
            try (CloseableHeapGraph g = HprofHeapGraph.Companion.openHeapGraph(new File(path), null, EnumSet.noneOf(HprofRecordTag.class))) {
                System.out.printf("%d %d %d %d%n", g.getClassCount(), g.getInstanceCount(), g.getObjectArrayCount(), g.getPrimitiveArrayCount());
            } catch (Exception e) {
                System.out.println(e);
            }
        }
    }
}
