package reput.interop;

import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Map;
import java.util.TreeMap;

/**
 * Prints the keys of RocketMQ's configuration, one a line: class, key, type, default, with tabs between; null is no default.
 * A key is a setter of a text, a number or a truth value, as MixAll.properties2Object reads them from a file, or a field, as
 * MixAll.object2Properties writes them for mqadmin getBrokerConfig.
 */
public final class Keys {
    private static final String PACKAGE = "org.apache.rocketmq.";
    private static final String[] CLASSES = {
        "common.BrokerConfig", "store.config.MessageStoreConfig", "tieredstore.MessageStoreConfig",
        "remoting.netty.NettyServerConfig", "remoting.netty.NettyClientConfig", "common.namesrv.NamesrvConfig",
        "auth.config.AuthConfig",
    };
    private static final String TLS = "remoting.netty.TlsSystemConfig";

    public static void main(String[] words) throws Exception {
        PrintStream lines = System.out;
        System.setOut(System.err);   // whatever a library prints is no line
        for (String name : CLASSES) {
            Class<?> type = found(name);
            if (type != null) {
                keys(type).forEach((key, told) -> lines.println(name + "\t" + key + "\t" + told));
            }
        }
        for (Field field : found(TLS).getFields()) {
            if (field.getType() == String.class && String.valueOf(field.get(null)).startsWith("tls.")) {
                lines.println(TLS + "\t" + field.get(null) + "\tString");
            }
        }
    }

    private static Class<?> found(String name) {
        try {
            return Class.forName(PACKAGE + name);
        } catch (ClassNotFoundException e) {
            return null;   // 4.9 has no tiered store and no users; of some versions not all jars are to be had
        }
    }

    private static Map<String, String> keys(Class<?> type) throws Exception {
        Object values = type.getDeclaredConstructor().newInstance();
        Map<String, Field> fields = new TreeMap<>();
        for (Class<?> one = type; one != Object.class; one = one.getSuperclass()) {
            for (Field field : one.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && isSimple(field.getType())) {
                    field.setAccessible(true);
                    fields.putIfAbsent(field.getName(), field);
                }
            }
        }
        Map<String, String> keys = new TreeMap<>();
        for (Map.Entry<String, Field> field : fields.entrySet()) {
            keys.put(field.getKey(), told(field.getValue().getType(), field.getValue().get(values)));
        }
        for (Method method : type.getMethods()) {
            String name = method.getName();
            if (name.startsWith("set") && method.getParameterCount() == 1 && isSimple(method.getParameterTypes()[0])) {
                keys.putIfAbsent(name.substring(3, 4).toLowerCase() + name.substring(4), told(method.getParameterTypes()[0], null));
            }
        }
        return keys;
    }

    private static boolean isSimple(Class<?> type) {
        return type.isPrimitive() || type == String.class || type.isEnum();
    }

    private static String told(Class<?> type, Object value) {
        return type.getSimpleName() + (value == null ? "" : "\t" + value);
    }
}
