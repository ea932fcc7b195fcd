package interop;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The options of one command, {@code --name value}, as words. */
final class Arguments {
    private final Map<String, String> values = new HashMap<>();

    Arguments(List<String> words) {
        for (int i = 0; i < words.size(); i += 2) {
            String name = words.get(i);
            if (!name.startsWith("--") || i + 1 == words.size()) {
                throw new IllegalArgumentException("expected --name value, found " + name);
            }
            values.put(name.substring(2), words.get(i + 1));
        }
    }

    String text(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing --" + name);
        }
        return value;
    }

    String text(String name, String fallback) {
        return values.getOrDefault(name, fallback);
    }

    int number(String name, int fallback) {
        return values.containsKey(name) ? Integer.parseInt(values.get(name)) : fallback;
    }

    long longNumber(String name, long fallback) {
        return values.containsKey(name) ? Long.parseLong(values.get(name)) : fallback;
    }

    boolean flag(String name) {
        return Boolean.parseBoolean(values.get(name));
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    /** A comma list; empty when the option is absent. */
    List<String> list(String name) {
        return values.containsKey(name) ? List.of(values.get(name).split(",")) : List.of();
    }

    /** The lines of --file, each with its line end, as bytes: together they are the file again. */
    List<byte[]> lines() throws IOException {
        byte[] all = Files.readAllBytes(Path.of(text("file")));
        List<byte[]> lines = new ArrayList<>();
        int begin = 0;
        for (int i = 0; i < all.length; i++) {
            if (all[i] == '\n' || i + 1 == all.length) {
                lines.add(java.util.Arrays.copyOfRange(all, begin, i + 1));
                begin = i + 1;
            }
        }
        return lines;
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
