// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.yarn.api.records.ApplicationTimeoutType;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.api.records.NodeState;
import org.apache.hadoop.yarn.api.records.Resource;

/**
 * What was looked at, as {@code themis.v1.Snapshot} (bridge/themis.proto). A gang is a job of its
 * application as an array; how its GPUs are split over nodes is free, in whole containers.
 */
final class Snapshot {
  private Snapshot() {}

  /** The message but for the time, so that equal views are equal bytes. */
  static byte[] encode(Gangs gangs) throws IOException {
    List<Nodes.View> nodes = gangs.nodes.all();
    for (Application a : gangs.applications()) {
      for (Gang g : a.gangs) {
        if (g.state == Gang.State.LANDING) {
          g.members.values().forEach(c -> {
            Nodes.View v = gangs.nodes.get(c.getAllocatedNode());
            if (v != null) {
              v.discount(c.getContainerId());
            }
          });
        }
      }
    }
    Message m = new Message();
    for (Nodes.View n : nodes) {
      m.put(5, node(n));
    }
    for (Application a : gangs.applications()) {
      for (Gang g : a.gangs) {
        m.put(6, job(gangs.nodes, a, g));
      }
    }
    return m.encode();
  }

  private static Message node(Nodes.View n) throws IOException {
    int state = n.up() ? 0 : n.state == NodeState.DECOMMISSIONING ? 1 : 2;
    return new Message()
        .put(1, n.name)
        .put(2, n.rack)
        .put(3, state)
        .put(4, n.total.getVirtualCores())
        .put(5, Math.max(n.cpus, 0))
        .put(6, n.total.getMemorySize())
        .put(7, Math.max(n.mem, 0))
        .put(10, n.why)
        .put(8, new Message().put(1, n.type).put(2, Gpus.in(n.total)).put(3, Math.max(n.gpus, 0)));
  }

  private static Message job(Nodes nodes, Application a, Gang g) throws IOException {
    int gpus = Math.max(g.gpus(), 1);
    Resource each = g.each;
    Message m =
        new Message()
            .put(1, g.id)
            .put(4, a.id.toString())
            .put(5, number(a.app.getUser()))
            .put(6, a.app.getUser())
            .put(7, a.queue)
            .put(8, g.partition)
            .put(9, a.app.getName() == null ? "" : a.app.getName())
            .put(10, comment(a, g))
            .put(11, a.share)
            .put(12, state(g))
            .put(13, g.state == Gang.State.ENDED ? g.outcome.ordinal() : 0)
            .put(14, blocked(g))
            .put(15, Math.min(a.app.getSubmitTime(), g.sinceMs) / 1000)
            .put(16, g.sinceMs / 1000)
            .put(17, g.startMs / 1000)
            .put(18, g.endMs / 1000)
            .put(19, limit(a))
            .put(20, g.restarts)
            .put(21, !g.master)
            .put(22, 1)
            .put(23, Math.max(g.size, 1))
            .put(25, (long) gpus * g.size)
            .put(29, (each.getVirtualCores() + gpus - 1) / gpus)
            .put(32, (each.getMemorySize() + gpus - 1) / gpus)
            .put(34, g.more)
            .put(40, gpus);
    eligible(m, nodes, g);
    for (Map.Entry<NodeId, Integer> on : g.places().entrySet()) {
      Nodes.View v = nodes.get(on.getKey());
      if (v != null && g.state != Gang.State.LANDING && !undone(g)) {
        m.put(37, new Message().put(1, v.index).put(2, on.getValue()));
      }
    }
    return m;
  }

  private static int state(Gang g) {
    return switch (g.state) {
      case WAITING, LANDING -> 0;
      case RUNNING -> 1;
      case LEAVING -> undone(g) ? 0 : 3;
      case ENDED -> 4;
    };
  }

  /** A gang that was never whole never ran, as far as the core knows. */
  private static boolean undone(Gang g) {
    return g.state == Gang.State.LEAVING && !g.ran;
  }

  private static String blocked(Gang g) {
    if (undone(g)) {
      return "what had landed of it is given back";
    }
    if (g.state != Gang.State.WAITING || g.asked) {
      return g.limit;
    }
    return "its application has not asked for it again";
  }

  private static String comment(Application a, Gang g) {
    double progress = a.progress(g);
    if (progress == 0) {
      return a.tags.hint();
    }
    return (a.tags.hint().isEmpty() ? "themis:" : a.tags.hint()) + " progress=" + progress;
  }

  /** A number that stands for a user, who need not be one of this machine. */
  private static long number(String user) {
    return 0x8000_0000L | user.hashCode() & 0x7fff_ffffL;
  }

  /** Seconds that it may take as a whole, 0 if that is not limited. */
  private static long limit(Application a) {
    Long end = a.app.getApplicationTimeouts().get(ApplicationTimeoutType.LIFETIME);
    return end == null ? 0 : Math.max((end - a.app.getSubmitTime()) / 1000, 1);
  }

  /** The nodes of the partition it asks for. */
  private static void eligible(Message m, Nodes nodes, Gang g) throws IOException {
    List<Nodes.View> all = nodes.all();
    if (all.stream().allMatch(n -> n.partition.equals(g.partition))) {
      m.put(35, true);
      return;
    }
    for (Nodes.View n : all) {
      if (n.partition.equals(g.partition)) {
        m.add(36, n.index);
      }
    }
  }
}
