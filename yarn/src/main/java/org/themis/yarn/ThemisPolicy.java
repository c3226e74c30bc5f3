// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.ArrayList;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.yarn.api.records.ApplicationAttemptId;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.resourcemanager.RMContext;
import org.apache.hadoop.yarn.server.resourcemanager.monitor.SchedulingEditPolicy;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.attempt.RMAppAttempt;
import org.apache.hadoop.yarn.server.resourcemanager.rmapp.attempt.RMAppAttemptState;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainer;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.ResourceScheduler;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.capacity.CapacityScheduler;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.ContainerPreemptEvent;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.event.SchedulerEventType;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The agent in the ResourceManager: shows the cluster to the core and brings its decisions back. One
 * of {@code yarn.resourcemanager.scheduler.monitor.policies}; {@code editSchedule} runs on the
 * SchedulingMonitor's own thread, which nothing in the ResourceManager waits for.
 */
public final class ThemisPolicy implements SchedulingEditPolicy {
  private static final Logger LOG = LoggerFactory.getLogger(ThemisPolicy.class);

  private static final long POLL_MS = 100; // for the core's answers
  private static final int TICK_DEFAULT_MS = 1000;
  private static final int TICK_MIN_MS = 200;
  private static final int TICK_MAX_MS = 10_000;
  private static final long KILL_AGAIN_MS = 5_000;
  private static final long COMPLAIN_MS = 60_000;
  private static final long FAIL_OPEN_MS = 60_000; // without a step that succeeds

  private enum State {
    OFF, // GPUs are scheduled as without Themis, which was said
    READY, // until the scheduler may allocate
    LINKED
  }

  private RMContext context;
  private Gangs gangs;
  private Landing landing;
  private Settings settings;
  private State state = State.OFF;
  private boolean fallback;
  private Directives directives = Directives.NONE;
  private long lookedMs;
  private byte[] sent = {};
  private final Set<Long> warned = new HashSet<>(); // leases
  private final Set<ApplicationAttemptId> explained = new HashSet<>();
  private long complainedMs;
  private long failingMs; // since when no step has succeeded, 0 if the last did
  private boolean open; // for that

  @Override
  public void init(Configuration conf, RMContext rm, ResourceScheduler scheduler) {
    context = rm;
    try {
      open(conf, scheduler);
    } catch (Throwable e) {
      LOG.error("themis: GPUs are scheduled as without Themis", e);
    }
  }

  private void open(Configuration conf, ResourceScheduler scheduler) throws Exception {
    if (!(scheduler instanceof CapacityScheduler capacity)) {
      LOG.error(
          "themis: GPUs are scheduled as without Themis: the scheduler is {}, not CapacityScheduler",
          scheduler.getClass().getName());
      return;
    }
    // YARN falls back to its own allocator without a word if ours cannot be used.
    String allocator = conf.get(YarnConfiguration.APPLICATION_PLACEMENT_TYPE_CLASS);
    if (!LeasedPlacementAllocator.class.getName().equals(allocator)) {
      LOG.error(
          "themis: GPUs are scheduled as without Themis: {} is {}, it must be {}",
          YarnConfiguration.APPLICATION_PLACEMENT_TYPE_CLASS,
          allocator,
          LeasedPlacementAllocator.class.getName());
      return;
    }
    if (!Shim.load(conf)) {
      return;
    }
    if (!(scheduler instanceof ThemisCapacityScheduler)) {
      LOG.warn(
          "themis: {} is not {}: malformed themis: tags are refused late, and applications with a"
              + " placement of their own get GPUs without a lease",
          YarnConfiguration.RM_SCHEDULER,
          ThemisCapacityScheduler.class.getName());
    }
    settings = Settings.of(conf);
    gangs = new Gangs(context, capacity);
    landing = new Landing(context, capacity);
    state = State.READY;
    LeaseTable.publish(LeaseTable.of(Map.of()));
    LOG.info("themis: deciding about GPUs");
  }

  @Override
  public void editSchedule() {
    try {
      // After a restart running containers come back with their nodes; until then the scheduler
      // allocates nothing, and a snapshot would tell of their end.
      if (state == State.READY && context.isSchedulerReadyForAllocatingContainers()) {
        link();
      }
      if (state == State.LINKED) {
        Shim.log();
        step(System.currentTimeMillis());
        failingMs = 0;
        if (open) {
          open = false;
          lookedMs = 0; // the next step has leases bind again
          LOG.info("themis: deciding about GPUs again");
        }
      }
    } catch (Throwable e) {
      failed(e, System.currentTimeMillis());
    }
  }

  private void failed(Throwable e, long now) {
    if (now - complainedMs > COMPLAIN_MS) {
      complainedMs = now;
      LOG.error("themis: a step was skipped", e);
    }
    failingMs = failingMs == 0 ? now : failingMs;
    if (!open && now - failingMs > FAIL_OPEN_MS) {
      open = true;
      LOG.error(
          "themis: no step has succeeded for {} s, GPUs are scheduled as without Themis until one does",
          FAIL_OPEN_MS / 1000);
      LeaseTable.publish(LeaseTable.OPEN);
      Reclaims.publish(Map.of());
    }
  }

  private void link() {
    String problem = Shim.open(settings);
    if (problem != null) {
      LOG.error("themis: GPUs are scheduled as without Themis: {}", problem);
      LeaseTable.publish(LeaseTable.OPEN);
    }
    state = problem == null ? State.LINKED : State.OFF;
  }

  private void step(long now) throws Exception {
    boolean news = fetch() | pulse(now);
    int tick =
        Math.min(
            Math.max(directives.tickMs == 0 ? TICK_DEFAULT_MS : directives.tickMs, TICK_MIN_MS),
            TICK_MAX_MS);
    if (!news && now - lookedMs < tick) {
      return;
    }
    lookedMs = now;
    gangs.look(now);
    if (!fallback) {
      grant(now);
      reclaim(now);
      LeaseTable.publish(LeaseTable.of(gangs.leases()));
      unreserve();
      landing.propose(gangs.applications());
    }
    explain();
    observe(now);
  }

  /** Takes new directives. True if there are any. */
  private boolean fetch() throws Exception {
    byte[] message = Shim.latest(directives.seq);
    if (message == null) {
      return false;
    }
    directives = Directives.parse(message);
    return true;
  }

  /** Follows the link to the core. True if it was lost or is back. */
  private boolean pulse(long now) {
    long silence = Shim.silence();
    if (silence >= 0 == fallback) {
      return false;
    }
    fallback = !fallback;
    if (fallback) {
      LOG.error(
          "themis: no answer from the core for {} s, GPUs are scheduled as without Themis until it"
              + " is back",
          silence / 1000);
      LeaseTable.publish(LeaseTable.OPEN);
      Reclaims.publish(Map.of());
      gangs.applications().forEach(a -> a.gangs.forEach(g -> g.settle(now)));
    } else {
      LOG.info("themis: the core is back and decides about GPUs again");
    }
    return true;
  }

  private void observe(long now) throws Exception {
    byte[] body = Snapshot.encode(gangs);
    if (Arrays.equals(body, sent)) {
      return; // the shim itself tells the core that the last one still holds
    }
    byte[] time = new Message().put(3, now / 1000).encode();
    byte[] message = Arrays.copyOf(time, time.length + body.length);
    System.arraycopy(body, 0, message, time.length, body.length);
    if (Shim.observe(message)) {
      sent = body;
    }
  }

  /** Opens leases for gangs that won, and undoes those of gangs whose grant was withdrawn. */
  private void grant(long now) {
    for (Application a : gangs.applications()) {
      for (Gang g : a.gangs) {
        Directives.Grant grant = directives.grants.get(g.id);
        if (g.state == Gang.State.WAITING && g.asked && grant != null) {
          grant(g, grant);
        } else if (g.state == Gang.State.LANDING
            && (grant == null || grant.lease() != g.lease.id)) {
          LOG.info("themis: {} did not start whole on its lease {}: it waits again", g.id, g.lease.id);
          g.withdraw(now);
        }
        if (g.state == Gang.State.LEAVING && !g.members.isEmpty()) {
          kill(a, g, now);
        }
      }
    }
  }

  private void grant(Gang g, Directives.Grant grant) {
    int each = g.gpus();
    Map<NodeId, Integer> places = new HashMap<>();
    for (int i = 0; i < grant.nodes().size(); i++) {
      NodeId node = gangs.nodes.named(grant.nodes().get(i));
      if (node != null) {
        places.put(node, grant.anywhere() ? 0 : grant.gpus().get(i) / each);
      }
    }
    Lease lease = new Lease(grant.lease(), each, grant.anywhere() ? Set.copyOf(places.keySet()) : null);
    if (g.grant(lease, places)) {
      LOG.info("themis: {} has lease {} on {}", g.id, grant.lease(),
          grant.anywhere() ? "any node" : String.join(",", grant.nodes()));
    }
  }

  /** Warns gangs whose lease ends, and ends those whose grace period is over. */
  private void reclaim(long now) {
    Map<String, Directives.Reclaim> due = new HashMap<>();
    directives.reclaims.forEach(r -> due.put(r.job(), r));
    warned.removeIf(l -> directives.reclaims.stream().noneMatch(r -> r.lease() == l));
    Map<ApplicationAttemptId, List<Reclaims.Notice>> notices = new HashMap<>();
    for (Application a : gangs.applications()) {
      for (Gang g : a.gangs) {
        Directives.Reclaim r = due.get(g.id);
        if (r == null && g.state == Gang.State.RUNNING) {
          g.reclaimed = 0; // it keeps its GPUs after all
        }
        if (r == null || g.state != Gang.State.RUNNING || a.attempt == null) {
          continue;
        }
        g.reclaimed = r.lease();
        if (warned.add(r.lease())) {
          LOG.info("themis: lease {} of {} ends: {}", r.lease(), g.id, r.why());
          g.members.values().forEach(c -> post(a, c, SchedulerEventType.MARK_CONTAINER_FOR_PREEMPTION));
        }
        if (r.due()) {
          kill(a, g, now);
        }
        notices
            .computeIfAbsent(a.attempt, id -> new ArrayList<>())
            .add(new Reclaims.Notice(List.copyOf(g.members.keySet()), g.demand.key().getPriority(), g.each));
      }
    }
    Reclaims.publish(notices);
  }

  /** Drops what YARN has reserved for gangs that no longer hold a lease there. */
  private void unreserve() {
    LeaseTable table = LeaseTable.current();
    for (Application a : gangs.applications()) {
      for (RMContainer c : a.reservations) {
        Demand demand = new Demand(a.id, c.getReservedSchedulerKey());
        if (a.attempt != null
            && !table.admits(demand, c.getReservedNode(), Gpus.in(c.getReservedResource()))) {
          post(a, c, SchedulerEventType.KILL_RESERVED_CONTAINER);
        }
      }
    }
  }

  private void kill(Application a, Gang g, long now) {
    if (now - g.killedMs < KILL_AGAIN_MS) {
      return;
    }
    g.killedMs = now;
    g.members.values().forEach(c -> post(a, c, SchedulerEventType.MARK_CONTAINER_FOR_KILLABLE));
  }

  private void post(Application a, RMContainer c, SchedulerEventType what) {
    context.getDispatcher().getEventHandler().handle(new ContainerPreemptEvent(a.attempt, c, what));
  }

  /**
   * Says in an application's diagnostics why it waits. Until its master has registered YARN keeps
   * its own there.
   */
  private void explain() {
    Set<ApplicationAttemptId> waiting = new HashSet<>();
    for (Application a : gangs.applications()) {
      String why = null;
      for (Gang g : a.gangs) {
        if (why == null && g.state == Gang.State.WAITING) {
          why = g.limit.isEmpty() ? directives.waits.get(g.id) : g.limit;
        }
      }
      RMAppAttempt attempt = a.app.getCurrentAppAttempt();
      if (attempt == null || attempt.getState() != RMAppAttemptState.RUNNING) {
        continue;
      }
      if (why != null && !fallback) {
        attempt.updateAMLaunchDiagnostics("Waiting for GPUs: " + why);
        waiting.add(attempt.getAppAttemptId());
      } else if (explained.contains(attempt.getAppAttemptId())) {
        attempt.updateAMLaunchDiagnostics(null);
      }
    }
    explained.clear();
    explained.addAll(waiting);
  }

  @Override
  public long getMonitoringInterval() {
    return POLL_MS;
  }

  @Override
  public String getPolicyName() {
    return "ThemisPolicy";
  }
}
