import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs the real mqadmin several times in one virtual machine: a command line per input line, words separated by tabs. While a
 * command runs, the line "stop" interrupts it: two of them run for ever.
 */
public final class AdminBatch {
    private static final char END_OF_OUTPUT = '\u001e';

    private static final String STOP = "stop";

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(out);
        System.setErr(out);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Thread command = new Thread();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.equals(STOP)) {
                while (command.isAlive()) { // more than once, since a send that is interrupted keeps it to itself
                    command.interrupt();
                    command.join(200);
                }
                continue;
            }
            command.join();
            String[] words = line.isEmpty() ? new String[0] : line.split("\t");
            forgetCommands();
            command = new Thread(() -> {
                MQAdminStartup.main0(words, null);
                out.println();
                out.println(END_OF_OUTPUT);
            });
            command.start();
        }
        Runtime.getRuntime().halt(0);
    }

    /**
     * MQAdminStartup keeps its command objects, which are made for a program that ends: a send whose shutdown failed leaves a
     * producer in its own that cannot be started again.
     */
    private static void forgetCommands() throws ReflectiveOperationException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType()) && Modifier.isStatic(field.getModifiers())) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }
}
