package reput.interop;

import java.lang.management.LockInfo;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;

/**
 * Ends a wait of seconds in each shutdown of a client of 5.x, and of servers: it joins the thread of channels' events, which
 * looks once in three seconds whether it has been stopped, unless an event comes. No option says less, or starts none.
 */
final class Shutdowns {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final int LOOK_MILLIS = 20;

    private Shutdowns() {}

    /** From now on, whenever the calling thread joins a thread of channels' events, that one is interrupted. */
    static void hasten() {
        Thread caller = Thread.currentThread();
        Thread watch = new Thread(() -> watch(caller), "shutdowns");
        watch.setDaemon(true);
        watch.start();
    }

    private static void watch(Thread caller) {
        try {
            for (;; Thread.sleep(LOOK_MILLIS)) {
                if (caller.getState() == Thread.State.TIMED_WAITING) interruptJoined(caller);
            }
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);   // nobody does
        }
    }

    private static void interruptJoined(Thread caller) {
        ThreadInfo info = THREADS.getThreadInfo(caller.getId());
        LockInfo awaited = info == null ? null : info.getLockInfo();   // of a join: the thread itself
        if (awaited == null) return;
        Thread[] all = new Thread[Thread.activeCount() + 100];
        for (int i = Thread.enumerate(all) - 1; i >= 0; i--) {
            boolean isAwaited = System.identityHashCode(all[i]) == awaited.getIdentityHashCode();
            if (isAwaited && all[i].getName().contains("NettyEventExecutor")) all[i].interrupt();
        }
    }
}
