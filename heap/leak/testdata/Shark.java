import java.io.File;
import shark.*;

/** Prints what Shark finds in an Android dump. */
public class Shark {
    public static void main(String[] args) {
        HeapAnalyzer analyzer = new HeapAnalyzer(OnAnalysisProgressListener.Companion.getNO_OP());
        System.out.println(analyzer.analyze(new File(args[0]),
            new FilteringLeakingObjectFinder(AndroidObjectInspectors.Companion.getAppLeakingObjectFilters()),
            AndroidReferenceMatchers.Companion.getAppDefaults(), true,
            AndroidObjectInspectors.Companion.getAppDefaults(), AndroidMetadataExtractor.INSTANCE, null));
    }
}
