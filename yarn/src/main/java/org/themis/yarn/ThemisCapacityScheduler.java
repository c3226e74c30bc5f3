// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.util.List;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.api.records.ResourceRequest;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMAppEvent;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMAppEventType;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerNode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.ApplicationSchedulingConfig;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.ContainerAllocationProposal;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.ResourceCommitRequest;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.SchedulerContainer;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.fica.FiCaSchedulerApp;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.fica.FiCaSchedulerNode;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.AppAddedSchedulerEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.SchedulerEvent;
import org.apache.hadoop.yarn.server.scheduler.SchedulerRequestKey;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * CapacityScheduler, closed where an application could get around {@link LeasedPlacementAllocator}:
 * the value of {@code yarn.resourcemanager.scheduler.class}. It also refuses malformed hints when an
 * application is submitted, with a sentence that shows the right form.
 */
public final class ThemisCapacityScheduler extends CapacityScheduler {
  static final String PLACES_ITSELF =
      "themis: an application with "
          + ApplicationSchedulingConfig.ENV_APPLICATION_PLACEMENT_TYPE_CLASS
          + " of its own cannot ask for GPUs; leave it out";

  private static final Logger LOG = LoggerFactory.getLogger(ThemisCapacityScheduler.class);

  /** Whether an application brings a placement allocator other than ours. Any thread. */
  static boolean placesItself(RMApp app) {
    String named =
        app.getApplicationSchedulingEnvs()
            .get(ApplicationSchedulingConfig.ENV_APPLICATION_PLACEMENT_TYPE_CLASS);
    return named != null && !named.equals(LeasedPlacementAllocator.class.getName());
  }

  /** On the scheduler's event thread. */
  @Override
  public void handle(SchedulerEvent event) {
    String problem = null;
    try {
      if (event instanceof AppAddedSchedulerEvent added && !added.getIsAppRecovering()) {
        problem = refuse(rmContext.getRMApps().get(added.getApplicationId()));
      }
      if (problem != null) {
        AppAddedSchedulerEvent added = (AppAddedSchedulerEvent) event;
        rmContext
            .getDispatcher()
            .getEventHandler()
            .handle(
                new RMAppEvent(added.getApplicationId(), RMAppEventType.APP_REJECTED, problem));
        return;
      }
    } catch (Throwable e) {
      LOG.error("themis: a submission was not checked", e);
    }
    super.handle(event);
  }

  private static String refuse(RMApp app) {
    if (app == null) {
      return null;
    }
    if (placesItself(app)) {
      for (ResourceRequest r : asksOfMaster(app)) {
        if (Gpus.in(r.getCapability()) > 0) {
          return PLACES_ITSELF;
        }
      }
    }
    return Tags.of(app.getApplicationTags()).check();
  }

  private static List<ResourceRequest> asksOfMaster(RMApp app) {
    List<ResourceRequest> asks = app.getAMResourceRequests();
    return asks == null ? List.of() : asks;
  }

  /**
   * The last line. Whoever is refused here again and again holds up its queue, so all ways are closed
   * earlier that are known of. On the thread that commits allocations.
   */
  @Override
  @SuppressWarnings({"unchecked", "rawtypes"}) // CapacityScheduler's own signature
  public boolean tryCommit(Resource cluster, ResourceCommitRequest r, boolean updatePending) {
    ResourceCommitRequest<FiCaSchedulerApp, FiCaSchedulerNode> request = r;
    SchedulerContainer<FiCaSchedulerApp, FiCaSchedulerNode> around = null;
    boolean admitted = true;
    try {
      around = around(request);
      if (around != null) {
        admitted =
            LeaseTable.current()
                .admits(
                    demand(around),
                    around.getSchedulerNode().getNodeID(),
                    Gpus.in(around.getRmContainer().getAllocatedOrReservedResource()));
      }
    } catch (Throwable e) {
      LOG.error("themis: an allocation was not checked", e);
    }
    if (!admitted) {
      // As CapacityScheduler does with what it does not accept.
      around.getSchedulerApplicationAttempt().decUnconfirmedRes(request.getTotalAllocatedResource());
      return false;
    }
    boolean done = super.tryCommit(cluster, request, updatePending);
    try {
      if (done && around != null) {
        LeaseTable.current()
            .take(
                demand(around),
                around.getSchedulerNode().getNodeID(),
                Gpus.in(around.getRmContainer().getAllocatedOrReservedResource()));
      }
    } catch (Throwable e) {
      LOG.error("themis: an allocation was not counted", e);
    }
    return done;
  }

  private static Demand demand(SchedulerContainer<FiCaSchedulerApp, FiCaSchedulerNode> c) {
    return new Demand(
        c.getSchedulerApplicationAttempt().getApplicationId(), c.getSchedulerRequestKey());
  }

  /** A new container with GPUs that our allocator does not gate, null if there is none. */
  private static SchedulerContainer<FiCaSchedulerApp, FiCaSchedulerNode> around(
      ResourceCommitRequest<FiCaSchedulerApp, FiCaSchedulerNode> request) {
    if (request.getContainersToAllocate() == null || request.getContainersToAllocate().isEmpty()) {
      return null;
    }
    ContainerAllocationProposal<FiCaSchedulerApp, FiCaSchedulerNode> first =
        request.getContainersToAllocate().get(0);
    SchedulerContainer<FiCaSchedulerApp, FiCaSchedulerNode> c =
        first.getAllocatedOrReservedContainer();
    if (Gpus.in(first.getAllocatedOrReservedResource()) == 0) {
      return null;
    }
    SchedulerRequestKey key = c.getSchedulerRequestKey();
    Object allocator =
        c.getSchedulerApplicationAttempt()
            .getAppSchedulingInfo()
            .<SchedulerNode>getAppPlacementAllocator(key);
    return allocator instanceof LeasedPlacementAllocator ? null : c;
  }

  @Override
  public void serviceStop() throws Exception {
    super.serviceStop(); // the policy's thread with it
    try {
      LeaseTable.publish(LeaseTable.OPEN);
      Shim.shut();
    } catch (Throwable e) {
      LOG.error("themis: the link to the core was not closed", e);
    }
  }
}
