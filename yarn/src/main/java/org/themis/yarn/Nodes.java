// SPDX-License-Identifier: Apache-2.0

package org.themis.yarn;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.yarn.api.records.ContainerId;
import org.apache.hadoop.yarn.api.records.NodeId;
import org.apache.hadoop.yarn.api.records.NodeState;
import org.apache.hadoop.yarn.api.records.Resource;
import org.apache.hadoop.yarn.server.resourcemanager.rmcontainer.RMContainer;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.SchedulerNode;

/**
 * The nodes with GPUs and what is on them, as their NodeManagers confirmed. A container counts until
 * its NodeManager has reported its exit and {@link #MARGIN_MS} more: the report says that the
 * container's shell is gone, and a process that did not heed SIGTERM gets its SIGKILL later
 * (yarn.nodemanager.sleep-delay-before-sigkill.ms, 250 ms by default). Of the policy's thread alone.
 */
final class Nodes {
  static final long MARGIN_MS = 1000;

  /** A node as it was looked at. */
  static final class View {
    final NodeId id;
    final String name;
    final String rack;
    final String partition;
    final NodeState state;
    final Resource total;
    final Map<ContainerId, Resource> held = new HashMap<>(); // with GPUs
    int index; // in the snapshot
    long cpus; // used, as are mem and gpus
    long mem;
    int gpus;

    View(SchedulerNode n) {
      id = n.getNodeID();
      name = n.getNodeName();
      rack = n.getRackName();
      partition = n.getPartition() == null ? "" : n.getPartition();
      state = n.getRMNode().getState();
      total = n.getTotalResource();
      cpus = n.getAllocatedResource().getVirtualCores();
      mem = n.getAllocatedResource().getMemorySize();
    }

    boolean up() {
      return state == NodeState.RUNNING;
    }

    /** A container that is not to count: it lands under a lease that the core counts. */
    void discount(ContainerId id) {
      Resource r = held.get(id);
      if (r != null) {
        gpus -= Gpus.in(r);
        cpus -= r.getVirtualCores();
        mem -= r.getMemorySize();
      }
    }
  }

  private record Ghost(NodeId node, Resource resource, long until) {}

  private Map<NodeId, View> views = new LinkedHashMap<>();
  private final Map<ContainerId, Ghost> ghosts = new HashMap<>();
  private final Map<String, NodeId> names = new HashMap<>();

  /** Looks at all nodes. Call it before looking at applications: see {@link Gangs#look}. */
  void look(List<? extends SchedulerNode> nodes, long now) {
    Map<NodeId, View> fresh = new LinkedHashMap<>();
    names.clear();
    for (SchedulerNode n : nodes) {
      View v = new View(n);
      if (Gpus.in(v.total) == 0) {
        continue;
      }
      for (RMContainer c : n.getCopiedListOfRunningContainers()) {
        Resource r = c.getAllocatedResource();
        if (Gpus.in(r) > 0) {
          v.held.put(c.getContainerId(), r);
        }
      }
      v.index = fresh.size();
      fresh.put(v.id, v);
      names.put(v.name, v.id);
    }
    for (View old : views.values()) {
      View is = fresh.get(old.id);
      old.held.forEach(
          (id, r) -> {
            if (is != null && !is.held.containsKey(id)) {
              ghosts.putIfAbsent(id, new Ghost(old.id, r, now + MARGIN_MS));
            }
          });
    }
    ghosts.values().removeIf(g -> now >= g.until || !fresh.containsKey(g.node));
    for (View v : fresh.values()) {
      v.held.values().forEach(r -> v.gpus += Gpus.in(r));
    }
    ghosts.values().forEach(g -> fresh.get(g.node).gpus += Gpus.in(g.resource));
    views = fresh;
  }

  /** Whether the container still counts on some node. */
  boolean holds(RMContainer c) {
    View v = views.get(c.getAllocatedNode());
    return v != null && v.held.containsKey(c.getContainerId())
        || ghosts.containsKey(c.getContainerId());
  }

  View get(NodeId id) {
    return views.get(id);
  }

  NodeId named(String name) {
    return names.get(name);
  }

  List<View> all() {
    return new ArrayList<>(views.values());
  }
}
