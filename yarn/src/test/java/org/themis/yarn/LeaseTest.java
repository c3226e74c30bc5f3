// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.api.records.Priority;
import org.apache.hadoop.yarn.server.scheduler.SchedulerRequestKey;
import org.junit.jupiter.api.Test;

class LeaseTest {
  private static final NodeId A = NodeId.newInstance("a", 1);
  private static final NodeId B = NodeId.newInstance("b", 1);
  private static final NodeId C = NodeId.newInstance("c", 1);

  @Test
  void letsInItsGangAndNoContainerMore() throws Exception {
    Lease lease = new Lease(1, 2, null);
    lease.allow(A, 3);
    lease.allow(B, 2);
    AtomicInteger in = new AtomicInteger();
    CountDownLatch go = new CountDownLatch(1);
    ExecutorService threads = Executors.newFixedThreadPool(8);
    for (int i = 0; i < 800; i++) {
      NodeId node = List.of(A, B, C).get(i % 3);
      threads.execute(
          () -> {
            try {
              go.await();
            } catch (InterruptedException e) {
              return;
            }
            if (lease.take(node, 2)) {
              in.incrementAndGet();
            }
          });
      if (i == 7) {
        go.countDown();
      }
    }
    threads.shutdown();
    assertTrue(threads.awaitTermination(30, TimeUnit.SECONDS));
    assertEquals(5, in.get());
    assertFalse(lease.admits(A, 1));
  }

  @Test
  void admitsNoLargerContainerAndNoOtherNode() {
    Lease lease = new Lease(1, 2, null);
    lease.allow(A, 1);
    assertTrue(lease.admits(A, 2));
    assertFalse(lease.admits(A, 3));
    assertFalse(lease.admits(B, 2));
    lease.close();
    assertFalse(lease.admits(A, 2));
  }

  @Test
  void anywhereMeansAnyNodeButThoseOfOthers() {
    Lease lease = new Lease(1, 1, Set.of(B));
    lease.allow(null, 2);
    assertTrue(lease.admits(C, 1));
    assertFalse(lease.admits(B, 1));
    assertTrue(lease.take(A, 1) && lease.take(C, 1));
    assertFalse(lease.take(A, 1));
  }

  @Test
  void tableGovernsGpusOnlyWhenPublished() {
    ApplicationId app = ApplicationId.newInstance(1, 1);
    Demand one = new Demand(app, new SchedulerRequestKey(Priority.newInstance(1), 0, null));
    Demand two = new Demand(app, new SchedulerRequestKey(Priority.newInstance(1), 7, null));
    assertTrue(LeaseTable.OPEN.admits(one, A, 8));
    Lease lease = new Lease(1, 2, null);
    lease.allow(A, 1);
    LeaseTable table = LeaseTable.of(Map.of(one, List.of(lease)));
    assertTrue(table.open(one) && table.admits(one, A, 2));
    assertFalse(table.open(two) || table.admits(two, A, 2));
    table.take(one, A, 2);
    assertFalse(table.open(one) || table.admits(one, A, 2));
  }
}
