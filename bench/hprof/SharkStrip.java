import java.io.File;

/** Strips a heap dump with Shark. The class path has shark-hprof and what it needs. */
public class SharkStrip {
    public static void main(String[] args) {
        new shark.HprofPrimitiveArrayStripper().stripPrimitiveArrays(new File(args[0]), new File(args[1]));
    }
}
