import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs the real mqadmin several times in one virtual machine: a command line per input line, words separated by tabs. */
public final class AdminBatch {
    private static final char END_OF_OUTPUT = '\u001e';

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(out);
        System.setErr(out);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            MQAdminStartup.main0(line.split("\t"), null);
            out.println();
            out.println(END_OF_OUTPUT);
        }
        Runtime.getRuntime().halt(0);
    }
}
