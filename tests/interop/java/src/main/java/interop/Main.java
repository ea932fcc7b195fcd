package interop;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Runs real RocketMQ clients for the tests and prints one JSON event a line.
 *
 * <p>{@code Main COMMAND --name value ...} runs one command; the end of stdin stops it. {@code Main serve} reads commands
 * from stdin, words separated by tabs: {@code ID COMMAND --name value ...} starts one (several run side by side),
 * {@code ID stop} ends it, the end of stdin ends all. One virtual machine thus serves a whole test session.
 */
public final class Main {
    /** One command: returns when it is done or when {@code stop} is set off. */
    interface Command {
        void run(Arguments arguments, Events events, Stop stop) throws Exception;
    }

    private static final Map<String, Command> COMMANDS = Map.of(
        "send-lines", Sending::sendLines,
        "receive", Receiving::receive,
        "pull", Pulling::pull,
        "offsets", Queries::offsets,
        "query-key", Queries::byKey,
        "view", Queries::view,
        "transaction", Transactions::send,
        "request", Requests::request,
        "reply", Requests::reply);

    private final PrintStream out;
    private final Map<String, Stop> running = new ConcurrentHashMap<>();

    private Main(PrintStream out) {
        this.out = out;
    }

    public static void main(String[] words) throws Exception {
        PrintStream events = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Main main = new Main(events);
        if (words.length == 1 && words[0].equals("serve")) {
            main.serve();
        } else {
            main.once(Arrays.asList(words));
        }
        Runtime.getRuntime().halt(0);
    }

    private void once(List<String> words) throws InterruptedException {
        Thread command = start("0", words);
        Thread input = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException e) {
                System.err.println(e);
            }
            running.values().forEach(Stop::set);
        });
        input.setDaemon(true);
        input.start();
        command.join();
    }

    private void serve() throws IOException {
        new Events(out, "").emit("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            List<String> words = List.of(line.split("\t"));
            if (words.size() == 2 && words.get(1).equals("stop")) {
                Stop stop = running.get(words.get(0));
                if (stop != null) {
                    stop.set();
                }
            } else {
                start(words.get(0), words.subList(1, words.size()));
            }
        }
    }

    private Thread start(String id, List<String> words) {
        Stop stop = new Stop();
        running.put(id, stop);
        Thread thread = new Thread(() -> {
            Events events = new Events(out, id);
            try {
                Command command = COMMANDS.get(words.get(0));
                if (command == null) {
                    throw new IllegalArgumentException("no command " + words.get(0));
                }
                command.run(new Arguments(words.subList(1, words.size())), events, stop);
                events.emit("done");
            } catch (Throwable e) {
                e.printStackTrace();
                events.emit("failed", "error", e.toString());
            } finally {
                running.remove(id);
            }
        }, "command-" + id);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }
}
