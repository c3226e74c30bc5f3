// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.util.Collection;
import java.util.Optional;
import org.apache.hadoop.yarn.api.records.ResourceRequest;
import org.apache.hadoop.yarn.server.resourcemanager.RMContext;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.AppSchedulingInfo;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.NodeType;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerNode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.activities.DiagnosticsCollector;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.SchedulingMode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.ContainerRequest;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.placement.LocalityAppPlacementAllocator;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.placement.PendingAskUpdateResult;
import org.apache.hadoop.yarn.server.scheduler.SchedulerRequestKey;

/**
 * YARN's own placement by locality, but for GPUs only where the application holds a lease: the value
 * of {@code yarn.scheduler.app-placement-allocator.class}. An ask that is refused here holds up
 * nobody behind it.
 *
 * <p>{@code precheckNode} is called by every scheduling thread for each node it looks at (hundreds
 * of times a second for a waiting ask), {@code canAllocate} and {@code allocate} by the one that
 * commits allocations, under the application's locks; see {@code FiCaSchedulerApp.accept} and
 * {@code apply}. Containers without GPUs take one field read more than under stock YARN.
 */
public final class LeasedPlacementAllocator<N extends SchedulerNode>
    extends LocalityAppPlacementAllocator<N> {
  private Demand demand;
  private volatile int gpus; // of each container asked for

  @Override
  public void initialize(AppSchedulingInfo app, SchedulerRequestKey key, RMContext context) {
    super.initialize(app, key, context);
    demand = new Demand(app.getApplicationId(), key);
  }

  @Override
  public PendingAskUpdateResult updatePendingAsk(
      Collection<ResourceRequest> requests, boolean recoverPreemptedRequestForAContainer) {
    for (ResourceRequest r : requests) {
      if (ResourceRequest.ANY.equals(r.getResourceName())) {
        gpus = Gpus.in(r.getCapability());
      }
    }
    return super.updatePendingAsk(requests, recoverPreemptedRequestForAContainer);
  }

  /**
   * None while no lease has room. An ask that is larger than what is left of its queue would
   * otherwise end the queue's turn (RegularContainerAllocator.preCheckRequest, which asks here
   * first): with all GPUs taken nothing behind it would start, with GPUs or without.
   */
  @Override
  public int getOutstandingAsksCount(String resourceName) {
    if (gpus > 0 && ResourceRequest.ANY.equals(resourceName)) {
      LeaseTable table = LeaseTable.current();
      if (table.governs() && !table.open(demand)) {
        return 0;
      }
    }
    return super.getOutstandingAsksCount(resourceName);
  }

  @Override
  public boolean precheckNode(
      SchedulerNode node, SchedulingMode mode, Optional<DiagnosticsCollector> diagnostics) {
    return super.precheckNode(node, mode, diagnostics) && mayStart(node);
  }

  @Override
  public boolean canAllocate(NodeType type, SchedulerNode node) {
    return super.canAllocate(type, node) && mayStart(node);
  }

  /**
   * On a lease, and where the GPUs are free: YARN would reserve a node that is full, and no other
   * application gets anything on a node that is reserved.
   */
  private boolean mayStart(SchedulerNode node) {
    int asked = gpus;
    if (asked == 0) {
      return true;
    }
    LeaseTable table = LeaseTable.current();
    return !table.governs()
        || table.admits(demand, node.getNodeID(), asked)
            && Gpus.in(node.getUnallocatedResource()) >= asked;
  }

  @Override
  public ContainerRequest allocate(SchedulerRequestKey key, NodeType type, SchedulerNode node) {
    int asked = gpus;
    if (asked > 0) {
      LeaseTable.current().take(demand, node.getNodeID(), asked);
    }
    return super.allocate(key, type, node);
  }
}
