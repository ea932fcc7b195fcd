package interop;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Says when a command has to end. */
final class Stop {
    private final CountDownLatch latch = new CountDownLatch(1);

    void set() {
        latch.countDown();
    }

    boolean isSet() {
        return latch.getCount() == 0;
    }

    void await() throws InterruptedException {
        latch.await();
    }

    /** Waits at most this long; true when the command has to end. */
    boolean await(long milliseconds) throws InterruptedException {
        return latch.await(milliseconds, TimeUnit.MILLISECONDS);
    }
}
