package reput.interop;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.annotation.Annotation;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What RemotingCommand makes of frames, and the fields of header classes, line by line as JSON. */
public final class Remoting {

    private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();
    private static final String[] PACKAGES = {
        "org.apache.rocketmq.remoting.protocol.header.", "org.apache.rocketmq.remoting.protocol.header.namesrv.",
        "org.apache.rocketmq.common.protocol.header.", "org.apache.rocketmq.common.protocol.header.namesrv.",
    };

    private Remoting() {
    }

    /** "frames" or "headers"; reads a frame in hexadecimal digits, or the name of a class, from each line. */
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(GSON.toJson(arguments[0].equals("frames") ? command(line) : fields(line)));
        }
    }

    /** The members of a command, and the frame that is made of it again. */
    private static Map<String, Object> command(String hex) {
        Map<String, Object> found = new LinkedHashMap<>();
        try {
            byte[] frame = bytes(hex);
            // The decoder in front of this one takes the length word away.
            byte[] rest = new byte[frame.length - 4];
            System.arraycopy(frame, 4, rest, 0, rest.length);
            RemotingCommand command = RemotingCommand.decode(rest);
            found.put("code", command.getCode());
            found.put("language", command.getLanguage() == null ? null : command.getLanguage().name());
            found.put("version", command.getVersion());
            found.put("opaque", command.getOpaque());
            found.put("flag", command.getFlag());
            found.put("remark", command.getRemark());
            found.put("extFields", command.getExtFields());
            found.put("serialize", command.getSerializeTypeCurrentRPC().name());
            found.put("body", command.getBody() == null ? "" : hex(ByteBuffer.wrap(command.getBody())));
            found.put("again", hex(command.encode()));
        } catch (Throwable error) {
            found.put("error", error.toString());
        }
        return found;
    }

    /** Field -> its type, and whether it is CFNotNull; null for a class that is not there. */
    private static Map<String, Object> fields(String name) {
        for (String where : PACKAGES) {
            Class<?> kind;
            try {
                kind = Class.forName(where + name);
            } catch (ClassNotFoundException error) {
                continue;
            }
            Map<String, Object> found = new LinkedHashMap<>();
            for (Field field : kind.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !field.isSynthetic()) {
                    found.put(field.getName(), new Object[] {field.getType().getSimpleName(), isRequired(field)});
                }
            }
            return found;
        }
        return null;
    }

    private static boolean isRequired(Field field) {
        for (Annotation one : field.getAnnotations()) {
            if (one.annotationType().getSimpleName().equals("CFNotNull")) {
                return true;
            }
        }
        return false;
    }

    private static byte[] bytes(String hex) {
        byte[] found = new byte[hex.length() / 2];
        for (int i = 0; i < found.length; i++) {
            found[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
        }
        return found;
    }

    private static String hex(ByteBuffer data) {
        StringBuilder found = new StringBuilder();
        while (data.hasRemaining()) {
            found.append(String.format("%02x", data.get()));
        }
        return found.toString();
    }
}
