// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.util.Collection;
import java.util.Map;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.server.resourcemanager.RMContext;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.ResourceLimits;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerUtils;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CSAssignment;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.SchedulingMode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.fica.FiCaSchedulerApp;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.fica.FiCaSchedulerNode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.placement.SimpleCandidateNodeSet;
import org.apache.hadoop.yarn.util.resource.Resources;

/**
 * Proposes the containers of a gang on the nodes of its lease. Under asynchronous scheduling (the
 * default) the scheduler's threads come by every node in turn, propose one container, and pass on the
 * way all gangs whose leases are elsewhere; the policy's thread knows the place, and goes there as one
 * more of them (CapacityScheduler.allocateContainersToNode). All limits are checked when a proposal is
 * committed (AbstractLeafQueue.accept). What is refused is left to the scheduler's own threads.
 *
 * <p>Of the policy's thread alone.
 */
final class Landing {
  /** Proposals that may wait to be committed: YARN's own default for its threads. */
  private static final int BACKLOG_MOST = 100;

  /** How long the policy may wait for them at a time. */
  private static final long WAIT_MOST_MS = 500;

  private final RMContext context;
  private final CapacityScheduler scheduler;

  Landing(RMContext context, CapacityScheduler scheduler) {
    this.context = context;
    this.scheduler = scheduler;
  }

  /** Proposes what gangs have places for and have not got yet. */
  void propose(Collection<Application> applications) throws InterruptedException {
    if (!scheduler.getConfiguration().getScheduleAynschronously()) {
      return; // a heartbeat brings as many containers as fit
    }
    long end = System.currentTimeMillis() + WAIT_MOST_MS;
    for (Application a : applications) {
      FiCaSchedulerApp app = a.attempt == null ? null : scheduler.getApplicationAttempt(a.attempt);
      for (Gang g : a.gangs) {
        if (app == null || g.state != Gang.State.LANDING) {
          continue;
        }
        for (Map.Entry<NodeId, Integer> place : g.granted().entrySet()) {
          FiCaSchedulerNode node = scheduler.getNode(place.getKey());
          for (int i = 0; i < place.getValue() && mayUse(app, node); i++) {
            while (scheduler.getAsyncSchedulingPendingBacklogs() > BACKLOG_MOST) {
              if (System.currentTimeMillis() > end) {
                return;
              }
              Thread.sleep(1);
            }
            if (!propose(app, node)) {
              break;
            }
          }
        }
      }
    }
  }

  /** What the scheduler looks at before it comes to an application. */
  private boolean mayUse(FiCaSchedulerApp app, FiCaSchedulerNode node) {
    return node != null
        && !CapacityScheduler.shouldSkipNodeSchedule(node, scheduler, false) // silent, or leaving
        && node.getReservedContainer() == null
        && !app.isStopped()
        && SchedulerUtils.checkQueueLabelExpression(
            app.getCSLeafQueue().getAccessibleNodeLabels(), node.getPartition(), context);
  }

  /** Proposes one container. False if the application has none for the node. */
  private boolean propose(FiCaSchedulerApp app, FiCaSchedulerNode node) {
    Resource cluster = scheduler.getClusterResource();
    CSAssignment assignment =
        app.assignContainers(
            cluster,
            new SimpleCandidateNodeSet<>(node),
            new ResourceLimits(
                context.getNodeLabelManager().getResourceByLabel(node.getPartition(), cluster)),
            SchedulingMode.RESPECT_PARTITION_EXCLUSIVITY,
            null);
    if (!Resources.greaterThan(
        scheduler.getResourceCalculator(), cluster, assignment.getResource(), Resources.none())) {
      return false;
    }
    assignment.setSchedulingMode(SchedulingMode.RESPECT_PARTITION_EXCLUSIVITY);
    scheduler.submitResourceCommitRequest(cluster, assignment);
    return true;
  }
}
