// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.yarn.api.records.ContainerExitStatus;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainer;

/**
 * Containers of one demand that start together or not at all: a job, as the core sees it. Of the
 * policy's thread alone.
 *
 * <pre>
 * WAITING -> LANDING -> RUNNING -> LEAVING -> ENDED
 *    ^          |                     |
 *    +----------+---------------------+  (grant withdrawn, lease reclaimed)
 * </pre>
 */
final class Gang {
  enum State {
    WAITING,
    LANDING, // it has a lease, and not all of its containers yet
    RUNNING,
    LEAVING, // over for its application; its nodes have not confirmed it
    ENDED
  }

  enum Outcome { // numbers of themis.v1.Job.Outcome
    NONE,
    COMPLETED,
    FAILED,
    CANCELLED,
    TIMEOUT,
    NODE_FAIL
  }

  /** A container that failed; its place is kept until the application has asked again. */
  private static final class Vacancy {
    final ContainerId of;
    final NodeId node;
    final long until;
    boolean open;

    Vacancy(ContainerId of, NodeId node, long until) {
      this.of = of;
      this.node = node;
      this.until = until;
    }
  }

  /** How long after an allocation its container has been seen for sure. */
  private static final long LATE_MS = 10_000;

  /** How long an application may take to hear of its containers, and to say what it lacks. */
  private static final long SETTLE_MS = 5_000;

  /** How long the place of a failed container is kept. */
  static final long KEEP_MS = 30_000;

  final String id;
  final Demand demand;
  final boolean master; // the application master's own container
  State state = State.WAITING;
  Outcome outcome = Outcome.NONE;
  int size; // containers
  int more; // gangs like this one that wait and are not listed
  Resource each = Resource.newInstance(0, 0);
  String partition = "";
  String limit = ""; // WAITING: which of the scheduler's own limits it would exceed
  boolean asked; // its application asks for it now
  boolean again; // LEAVING: it will wait again
  boolean ran; // LEAVING: it was whole before
  boolean adopted; // it started without a lease of ours
  Lease lease;
  long reclaimed; // the lease that was reclaimed under it, 0 if none was
  long killedMs;
  int restarts;
  final long sinceMs;
  long startMs;
  long endMs;

  final Map<ContainerId, RMContainer> members = new LinkedHashMap<>();
  final Map<ContainerId, RMContainer> leaving = new LinkedHashMap<>();
  private final List<Vacancy> vacancies = new ArrayList<>();
  private final Map<NodeId, Integer> granted = new HashMap<>(); // containers by node
  private int landed;
  private long withdrawnMs;
  private long failedMs; // when a member last failed while others had still to land

  Gang(String id, Demand demand, boolean master, long now) {
    this.id = id;
    this.demand = demand;
    this.master = master;
    this.sinceMs = now;
  }

  int gpus() {
    return Gpus.in(each);
  }

  /** Containers of the pending ask that are spoken for: still to land, or to be replaced. */
  int needs() {
    return switch (state) {
      case LANDING -> size - landed;
      case RUNNING -> vacancies.size();
      default -> 0;
    };
  }

  /**
   * Whether its application may not know yet what it has got. An ask is a total: one that was sent
   * before the last containers were heard of asks for them once more.
   */
  boolean settles(long now) {
    return state == State.LANDING || state == State.RUNNING && now - startMs < SETTLE_MS;
  }

  /** Starts to land. False if the lease does not hold the whole gang. */
  boolean grant(Lease to, Map<NodeId, Integer> places) {
    int offered = places.values().stream().mapToInt(Integer::intValue).sum();
    if (!to.anywhere() && offered < size) {
      return false;
    }
    granted.clear();
    landed = 0;
    lease = to;
    state = State.LANDING;
    adopted = false;
    reclaimed = 0;
    outcome = Outcome.NONE;
    if (to.anywhere()) {
      to.allow(null, size);
      return true;
    }
    int left = size;
    for (Map.Entry<NodeId, Integer> e : places.entrySet()) {
      int n = Math.min(left, e.getValue());
      granted.put(e.getKey(), n);
      to.allow(e.getKey(), n);
      left -= n;
    }
    return true;
  }

  /**
   * The application asks for fewer containers than have still to land. If one has just failed, it
   * may not have asked again yet.
   */
  void shrink(int containers, long now) {
    if (now - failedMs < KEEP_MS) {
      return;
    }
    for (int i = 0; i < containers && size > landed; i++) {
      size--;
      for (Map.Entry<NodeId, Integer> e : granted.entrySet()) {
        if (e.getValue() > 0 && lease.take(e.getKey(), 0)) {
          e.setValue(e.getValue() - 1);
          break;
        }
      }
    }
    complete(now);
  }

  /** Containers by node that have still to land. */
  Map<NodeId, Integer> granted() {
    return granted;
  }

  /** Whether a new container of the demand belongs here. */
  boolean expects(RMContainer c) {
    NodeId node = c.getAllocatedNode();
    if (state == State.RUNNING) {
      return vacancies.stream().anyMatch(v -> v.open && v.node.equals(node));
    }
    if (state != State.LANDING || landed >= size) {
      return false;
    }
    return lease.anywhere() || granted.getOrDefault(node, 0) > 0;
  }

  /** Takes in a container that it expects. */
  void land(RMContainer c, long now) {
    members.put(c.getContainerId(), c);
    NodeId node = c.getAllocatedNode();
    if (state == State.RUNNING) {
      for (Iterator<Vacancy> i = vacancies.iterator(); i.hasNext(); ) {
        Vacancy v = i.next();
        if (v.open && v.node.equals(node)) {
          i.remove();
          break;
        }
      }
      return;
    }
    granted.computeIfPresent(node, (n, left) -> left - 1);
    landed++;
    complete(now);
  }

  private void complete(long now) {
    if (state != State.LANDING || landed < size) {
      return;
    }
    if (size == 0) {
      unlease();
      state = State.WAITING;
      return;
    }
    if (lease.anywhere()) { // from now on it is for the nodes where it landed
      lease = new Lease(lease.id, gpus(), null);
    }
    state = State.RUNNING;
    startMs = now;
  }

  /** Takes in a container that started without a lease of ours. */
  void adopt(RMContainer c, long now) {
    if (state != State.RUNNING) {
      unlease();
      state = State.RUNNING;
      startMs = c.getCreationTime() > 0 ? c.getCreationTime() : now;
      size = 0;
      adopted = true;
      reclaimed = 0;
    }
    each = c.getAllocatedResource();
    size++;
    members.put(c.getContainerId(), c);
  }

  /** The core is gone, and what has landed runs on without the rest. */
  void settle(long now) {
    if (state != State.LANDING) {
      return;
    }
    unlease();
    size = landed;
    state = landed == 0 ? State.WAITING : State.RUNNING;
    startMs = now;
    adopted = true;
  }

  /** A member is no longer alive for its application. */
  void lose(ContainerId member, boolean restarted, boolean nodeUp, long now) {
    RMContainer c = members.remove(member);
    leaving.put(member, c);
    NodeId node = c.getAllocatedNode();
    // What an application gives back and what is lost with its node have the same exit status.
    boolean lost = !nodeUp && c.getContainerExitStatus() == ContainerExitStatus.ABORTED;
    boolean done = !restarted && !lost && ended(c.getContainerExitStatus());
    boolean replace = !done && nodeUp && reclaimed == 0;
    if (state == State.LANDING && !done) {
      landed--;
      failedMs = now;
    }
    if (replace && (state == State.LANDING || state == State.RUNNING)) {
      vacancies.add(new Vacancy(member, node, now + KEEP_MS));
    } else if (state == State.RUNNING) {
      outcome = done ? outcome : lost ? Outcome.NODE_FAIL : Outcome.FAILED;
      size--;
    }
  }

  private static boolean ended(int status) {
    return status == ContainerExitStatus.SUCCESS
        || status == ContainerExitStatus.ABORTED // given back by its application
        || status == ContainerExitStatus.KILLED_BY_APPMASTER
        || status == ContainerExitStatus.KILLED_AFTER_APP_COMPLETION;
  }

  /**
   * Opens the places of failed containers whose exit is confirmed, and drops those that nobody has
   * asked for again.
   */
  void tend(long now) {
    for (Iterator<Vacancy> i = vacancies.iterator(); i.hasNext(); ) {
      Vacancy v = i.next();
      if (now >= v.until || reclaimed != 0) {
        if (!v.open || lease.take(v.node, 0)) {
          i.remove();
          outcome = Outcome.FAILED;
          size -= state == State.RUNNING ? 1 : 0;
        }
      } else if (!v.open && !leaving.containsKey(v.of)) {
        if (lease == null) {
          lease = new Lease(0, gpus(), null);
        }
        lease.allow(v.node, 1);
        v.open = true;
        if (state == State.LANDING) {
          granted.merge(v.node, 1, Integer::sum);
          i.remove();
        }
      }
    }
    if (state == State.RUNNING && members.isEmpty() && vacancies.isEmpty()) {
      leave(reclaimed != 0, outcome == Outcome.NONE ? Outcome.COMPLETED : outcome);
    }
  }

  /** The grant was withdrawn before the gang was complete. Its members are to be killed. */
  void withdraw(long now) {
    unlease();
    state = members.isEmpty() && leaving.isEmpty() ? State.WAITING : State.LEAVING;
    again = true;
    ran = false;
    outcome = Outcome.NONE;
    withdrawnMs = now;
  }

  /** Whether a container may still appear that took its place before the grant was withdrawn. */
  boolean withdrawn(long now) {
    return (state == State.WAITING || state == State.LEAVING && again)
        && now - withdrawnMs < LATE_MS;
  }

  /** Takes in such a container, which is to be killed. */
  void late(RMContainer c) {
    members.put(c.getContainerId(), c);
    state = State.LEAVING;
    again = true;
    ran = false;
  }

  /** It is over for its application. */
  void leave(boolean waitAgain, Outcome how) {
    unlease();
    leaving.putAll(members);
    members.clear();
    vacancies.clear();
    ran = state == State.RUNNING;
    state = State.LEAVING;
    again = waitAgain;
    outcome = waitAgain ? Outcome.NONE : how;
  }

  /** Its nodes have confirmed that it is gone. */
  void gone(long now) {
    if (state != State.LEAVING || !leaving.isEmpty() || !members.isEmpty()) {
      return;
    }
    endMs = now;
    if (again) {
      state = State.WAITING;
      asked = false;
      restarts += ran ? 1 : 0;
      startMs = endMs = 0;
    } else {
      state = State.ENDED;
    }
  }

  private void unlease() {
    if (lease != null) {
      lease.close();
    }
    lease = null;
    granted.clear();
    vacancies.clear();
    landed = 0;
  }

  /** GPUs by node that it holds or that are kept for it. */
  Map<NodeId, Integer> places() {
    Map<NodeId, Integer> on = new LinkedHashMap<>();
    (state == State.LEAVING ? leaving : members)
        .values()
        .forEach(c -> on.merge(c.getAllocatedNode(), Gpus.in(c.getAllocatedResource()), Integer::sum));
    vacancies.forEach(v -> on.merge(v.node, gpus(), Integer::sum));
    return on;
  }
}
