import java.util.logging.FileHandler;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.logging.SimpleFormatter;

/** Logs PATH N: writes N records with java.util.logging to a file, with the handler's usual settings. */
public class Logs {
    static FileHandler logTo(String path) throws Exception {
        FileHandler h = new FileHandler(path);
        h.setFormatter(new SimpleFormatter());
        return h;
    }

    public static void main(String[] args) throws Exception {
        Logger log = Logger.getLogger("app");
        log.setUseParentHandlers(false);
        FileHandler h = logTo(args[0]);
        log.addHandler(h);
        int n = Integer.parseInt(args[1]);
        for (int i = 0; i < n; i++) {
            log.log(Level.INFO, "request {0} took {1} ms", new Object[] {i, i % 7});
        }
        h.close();
    }
}
