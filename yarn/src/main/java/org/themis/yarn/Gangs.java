// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.yarn.api.records.ApplicationId;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.ExecutionType;
import org.apache.hadoop.yarn.api.records.FinalApplicationStatus;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.server.resourcemanager.RMContext;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.RMApp;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainer;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerApplication;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.AbstractLeafQueue;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CSQueue;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.PendingAsk;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.common.fica.FiCaSchedulerApp;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.placement.AppPlacementAllocator;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerNode;
import org.apache.hadoop.yarn.server.scheduler.SchedulerRequestKey;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * All gangs: what applications ask for and run, read from the scheduler again and again and compared
 * with what was known. Of the policy's thread alone.
 */
final class Gangs {
  private static final Logger LOG = LoggerFactory.getLogger(Gangs.class);

  /** Waiting gangs of one demand that are listed one by one. */
  private static final int LISTED_MOST = 64;

  /** How long the core is told of a gang that has ended. */
  private static final long TELL_MS = 60_000;

  final Nodes nodes = new Nodes();
  private final Map<ApplicationId, Application> applications = new TreeMap<>();
  private final RMContext context;
  private final CapacityScheduler scheduler;
  private long leaves; // queues that take applications

  Gangs(RMContext context, CapacityScheduler scheduler) {
    this.context = context;
    this.scheduler = scheduler;
  }

  Collection<Application> applications() {
    return applications.values();
  }

  /**
   * Looks at the cluster. An allocation is entered first with its application, then with its node
   * (FiCaSchedulerApp.apply), so nodes are looked at first: what is found on a node then is known to
   * its application, too.
   */
  void look(long now) {
    leaves =
        scheduler.getCapacitySchedulerQueueManager().getQueues().values().stream()
            .filter(AbstractLeafQueue.class::isInstance)
            .count();
    nodes.look(scheduler.getAllNodes(), context.getRMNodes().values(), now);
    for (Map.Entry<ApplicationId, SchedulerApplication<FiCaSchedulerApp>> e :
        scheduler.getSchedulerApplications().entrySet()) {
      FiCaSchedulerApp attempt = e.getValue().getCurrentAppAttempt();
      RMApp app = context.getRMApps().get(e.getKey());
      if (attempt != null && app != null) {
        look(app, attempt, now);
      }
    }
    for (Iterator<Application> i = applications.values().iterator(); i.hasNext(); ) {
      Application a = i.next();
      SchedulerApplication<FiCaSchedulerApp> is = scheduler.getSchedulerApplications().get(a.id);
      if (is == null) {
        over(a, now);
      }
      a.gangs.removeIf(g -> g.state == Gang.State.ENDED && now - g.endMs > TELL_MS);
      if (is == null && a.gangs.isEmpty()) {
        i.remove();
      }
    }
  }

  private void look(RMApp app, FiCaSchedulerApp attempt, long now) {
    Application a = applications.get(app.getApplicationId());
    if (a == null) {
      if (Gpus.in(attempt.getAppAttemptResourceUsage().getAllUsed()) == 0
          && asks(attempt).isEmpty()) {
        return;
      }
      a = new Application(app);
      applications.put(a.id, a);
    }
    Map<ContainerId, RMContainer> live;
    Map<Demand, PendingAsk> asks;
    attempt.getWriteLock().lock(); // what is no longer asked for must be among what is alive
    try {
      asks = asks(attempt);
      live = live(attempt);
    } finally {
      attempt.getWriteLock().unlock();
    }
    boolean restarted =
        a.attempt != null && !a.attempt.equals(attempt.getApplicationAttemptId());
    a.attempt = attempt.getApplicationAttemptId();
    a.queue = attempt.getCSLeafQueue().getQueuePath();
    a.share = share(attempt.getCSLeafQueue());
    a.master = attempt.isWaitingForAMContainer();
    a.reservations =
        attempt.getReservedContainers().stream()
            .filter(c -> Gpus.in(c.getReservedResource()) > 0)
            .toList();
    lose(a, live, restarted, now);
    land(a, live, now);
    for (Gang g : a.gangs) {
      g.tend(now);
      confirm(g, now);
    }
    match(a, attempt, asks, now);
    for (Gang g : a.gangs) {
      boolean waits = g.state == Gang.State.WAITING && g.asked;
      g.limit =
          waits ? Limits.over(scheduler, attempt.getCSLeafQueue(), attempt.getUser(), g) : "";
    }
  }

  /** 1 if all queues have even shares, as with Slurm's associations: the two may be one pool. */
  private double share(CSQueue queue) {
    return Math.max(queue.getAbsoluteCapacity() * leaves, 0);
  }

  private static Map<ContainerId, RMContainer> live(FiCaSchedulerApp attempt) {
    Map<ContainerId, RMContainer> live = new TreeMap<>();
    for (RMContainer c : attempt.getLiveContainers()) {
      if (Gpus.in(c.getAllocatedResource()) > 0
          && c.getExecutionType() == ExecutionType.GUARANTEED
          && !c.completed()) {
        live.put(c.getContainerId(), c);
      }
    }
    return live;
  }

  /** Asks for GPUs, but for changes of running containers. */
  private static Map<Demand, PendingAsk> asks(FiCaSchedulerApp attempt) {
    Map<Demand, PendingAsk> asks = new LinkedHashMap<>();
    for (SchedulerRequestKey key : attempt.getSchedulerKeys()) {
      PendingAsk ask = attempt.getAppSchedulingInfo().getPendingAsk(key);
      if (key.getContainerToUpdate() == null
          && ask.getCount() > 0
          && Gpus.in(ask.getPerAllocationResource()) > 0) {
        asks.put(new Demand(attempt.getApplicationId(), key), ask);
      }
    }
    return asks;
  }

  private void lose(Application a, Map<ContainerId, RMContainer> live, boolean restarted, long now) {
    for (Gang g : a.gangs) {
      for (RMContainer c : new ArrayList<>(g.members.values())) {
        if (!live.containsKey(c.getContainerId())) {
          Nodes.View node = nodes.get(c.getAllocatedNode());
          g.lose(c.getContainerId(), restarted, node != null && node.up(), now);
        }
      }
    }
  }

  private void land(Application a, Map<ContainerId, RMContainer> live, long now) {
    for (Gang g : a.gangs) {
      live.keySet().removeAll(g.members.keySet());
      live.keySet().removeAll(g.leaving.keySet());
    }
    for (RMContainer c : live.values()) {
      Demand d = new Demand(a.id, c.getAllocatedSchedulerKey());
      Gang to = first(a, g -> g.demand.equals(d) && g.expects(c));
      Gang late = first(a, g -> g.demand.equals(d) && g.withdrawn(now));
      if (to != null) {
        to.land(c, now);
      } else if (late != null && LeaseTable.current().governs()) {
        late.late(c);
      } else {
        adopter(a, d, c, now).adopt(c, now);
      }
    }
  }

  /** The gang that a container joins which started without a lease of ours. */
  private static Gang adopter(Application a, Demand d, RMContainer c, long now) {
    int most = a.tags.gang() == 0 ? Integer.MAX_VALUE : a.tags.gang();
    Gang g =
        first(
            a,
            o ->
                o.demand.equals(d) && o.state == Gang.State.RUNNING && o.adopted && o.size < most);
    if (g == null) {
      g = first(a, o -> o.demand.equals(d) && o.state == Gang.State.WAITING);
    }
    if (g == null) {
      a.master = c.isAMContainer();
      g = a.add(d, now);
    }
    return g;
  }

  private static Gang first(Application a, java.util.function.Predicate<Gang> p) {
    for (Gang g : a.gangs) {
      if (p.test(g)) {
        return g;
      }
    }
    return null;
  }

  /** Notes which containers' nodes have confirmed that they are gone. */
  private void confirm(Gang g, long now) {
    g.leaving.values().removeIf(c -> !nodes.holds(c));
    g.gone(now);
  }

  /** Compares what the application asks for with the gangs that wait. */
  private void match(
      Application a, FiCaSchedulerApp attempt, Map<Demand, PendingAsk> asks, long now) {
    Map<Demand, PendingAsk> all = new LinkedHashMap<>(asks);
    a.gangs.forEach(g -> all.putIfAbsent(g.demand, PendingAsk.ZERO));
    all.forEach((d, ask) -> match(a, attempt, d, ask, now));
  }

  private void match(
      Application a, FiCaSchedulerApp attempt, Demand d, PendingAsk ask, long now) {
    int left = ask.getCount();
    for (Gang g : a.gangs) {
      if (g.demand.equals(d)) {
        left -= g.needs();
      }
    }
    for (Gang g : a.gangs) {
      if (left < 0 && g.demand.equals(d) && g.state == Gang.State.LANDING) {
        int before = g.needs();
        g.shrink(-left, now);
        left += before - g.needs();
      }
    }
    int whole = a.tags.gang() == 0 ? Integer.MAX_VALUE : a.tags.gang();
    AppPlacementAllocator<SchedulerNode> allocator =
        attempt.getAppSchedulingInfo().getAppPlacementAllocator(d.key());
    String partition = allocator == null ? "" : allocator.getPrimaryRequestedNodePartition();
    int listed = 0;
    Gang last = null;
    for (Iterator<Gang> i = a.gangs.iterator(); i.hasNext(); ) {
      Gang g = i.next();
      boolean waits =
          g.state == Gang.State.WAITING || g.state == Gang.State.LEAVING && g.again;
      if (!waits || !g.demand.equals(d)) {
        continue;
      }
      if (left <= 0 && g.restarts == 0 && g.state == Gang.State.WAITING) {
        i.remove(); // its application asks for less
        continue;
      }
      left -= want(g, Math.min(Math.max(left, 0), whole), ask, partition);
      listed++;
      last = g;
    }
    boolean settled = first(a, g -> g.demand.equals(d) && g.settles(now)) == null;
    while (left > 0 && settled && listed < LISTED_MOST) {
      last = a.add(d, now);
      LOG.debug("themis: {} waits: {} more containers of {} are asked for", last.id, left, d);
      left -= want(last, Math.min(left, whole), ask, partition);
      listed++;
    }
    if (last != null) {
      last.more = left <= 0 || !settled ? 0 : (left + whole - 1) / whole;
    }
  }

  private static int want(Gang g, int containers, PendingAsk ask, String partition) {
    g.asked = containers > 0;
    g.more = 0;
    if (g.asked && g.state == Gang.State.WAITING) {
      g.size = containers;
      g.each = Resource.newInstance(ask.getPerAllocationResource());
      g.partition = partition == null ? "" : partition;
    }
    return containers;
  }

  private void over(Application a, long now) {
    a.attempt = null;
    for (Gang g : a.gangs) {
      switch (g.state) {
        case WAITING -> {
          g.state = Gang.State.ENDED;
          g.outcome = outcome(a.app);
          g.endMs = now;
        }
        case LANDING, RUNNING -> g.leave(false, outcome(a.app));
        case LEAVING -> {
          if (g.again) {
            g.again = false;
            g.outcome = outcome(a.app);
          }
        }
        default -> {}
      }
      confirm(g, now);
    }
  }

  private static Gang.Outcome outcome(RMApp app) {
    FinalApplicationStatus s = app.getFinalApplicationStatus();
    return switch (s == null ? FinalApplicationStatus.UNDEFINED : s) {
      case SUCCEEDED -> Gang.Outcome.COMPLETED;
      case KILLED -> Gang.Outcome.CANCELLED;
      default -> Gang.Outcome.FAILED;
    };
  }

  /** Leases by demand, for the table. */
  Map<Demand, List<Lease>> leases() {
    Map<Demand, List<Lease>> out = new HashMap<>();
    for (Application a : applications.values()) {
      for (Gang g : a.gangs) {
        if (g.lease != null) {
          out.computeIfAbsent(g.demand, d -> new ArrayList<>()).add(g.lease);
        }
      }
    }
    return out;
  }
}
