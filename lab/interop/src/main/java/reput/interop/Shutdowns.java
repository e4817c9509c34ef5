package reput.interop;

import java.lang.management.LockInfo;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.lang.management.ThreadMXBean;
import java.util.List;

/**
 * Ends waits of seconds in RocketMQ's shutdowns, for which there is no option, by interrupts. Each client of 5.x and each server
 * joins a thread that looks once in three seconds whether it has been stopped, unless something happens on a channel; a broker
 * of 5.x joins threads that sleep before they look again at what was popped, and then sleeps for three seconds itself.
 */
final class Shutdowns {
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final List<String> SLOW = List.of("NettyEventExecutor", "PopReviveService", "PopBufferMergeService");
    private static final int LOOK_MILLIS = 5;
    private static final int DEPTH = 4;

    private Shutdowns() {}

    /** From now on, whatever the calling thread shuts down has no such wait. */
    static void hasten() {
        Thread caller = Thread.currentThread();
        Thread watch = new Thread(() -> watch(caller), "shutdowns");
        watch.setDaemon(true);
        watch.start();
    }

    private static void watch(Thread caller) {
        try {
            for (;; Thread.sleep(LOOK_MILLIS)) {
                if (caller.getState() == Thread.State.TIMED_WAITING) look(caller);
            }
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);   // nobody does
        }
    }

    private static void look(Thread caller) {
        ThreadInfo info = THREADS.getThreadInfo(caller.getId(), DEPTH);
        if (info == null || info.getThreadState() != Thread.State.TIMED_WAITING) return;
        LockInfo awaited = info.getLockInfo();   // of a join: the thread itself
        if (awaited != null) interrupt(awaited);
        else if (sleepsInStore(info.getStackTrace())) caller.interrupt();
    }

    /** Only where it waits: an interrupt amid a write closes the file. */
    private static void interrupt(LockInfo awaited) {
        Thread[] all = new Thread[Thread.activeCount() + 100];
        for (int i = Thread.enumerate(all) - 1; i >= 0; i--) {
            if (System.identityHashCode(all[i]) != awaited.getIdentityHashCode()) continue;
            boolean isSlow = SLOW.stream().anyMatch(all[i].getName()::contains);
            if (isSlow && all[i].getState() == Thread.State.TIMED_WAITING) all[i].interrupt();
        }
    }

    /** Before it stops its services, for dispatch to catch up, which it awaits anyway. */
    private static boolean sleepsInStore(StackTraceElement[] frames) {
        for (StackTraceElement frame : frames) {
            if (frame.getClassName().equals("java.lang.Thread")) continue;
            return frame.getClassName().endsWith("DefaultMessageStore") && frame.getMethodName().equals("shutdown");
        }
        return false;
    }
}
